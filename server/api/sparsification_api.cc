#include "server/api/sparsification_api.h"

#include <memory>
#include <utility>

#include "proto/support/grpc_status.h"
#include "server/api/stream_writer.h"

namespace espalier {
namespace {

// Messages that wait for a client before the run is asked to wait too.
constexpr size_t kWatchRoom = 64;
constexpr size_t kReportRoom = 4;
// Chunks are of 1 MiB.
constexpr size_t kChunkRoom = 4;

// A client's ReadParameter or ReadMask as the domain sees it.
template <typename Response>
class ChunkWriter final : public ChunkSink {
 public:
  explicit ChunkWriter(std::shared_ptr<StreamWriter<Response>> writer) : writer_(std::move(writer)) {}

  bool HasRoom() const override { return writer_->Room() > 0; }
  bool Closed() const override { return writer_->Closed(); }
  void WriteHeader(const v1::ParameterHeader& header) override {
    Response response;
    *response.mutable_header() = header;
    writer_->Write(std::move(response));
  }
  void WriteChunk(v1::DataChunk chunk) override {
    Response response;
    *response.mutable_chunk() = std::move(chunk);
    writer_->Write(std::move(response));
  }
  void Finish(const absl::Status& status) override { writer_->Finish(status); }
  void OnChange(std::function<void()> callback) override { writer_->OnChange(std::move(callback)); }

 private:
  const std::shared_ptr<StreamWriter<Response>> writer_;
};

}  // namespace

template <typename Request, typename Response>
grpc::ServerUnaryReactor* SparsificationApi::Carry(Context* context, const Request* request, Response* response,
                                                   void (Coordinator::*method)(const Request&, Reply<Response>)) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // Request and response live until Finish.
  // The coordinator is captured by address: GCC 12 with -fsanitize=vptr looks for coordinator_ in a register not yet set.
  loop_.Post([coordinator = &coordinator_, request, response, reactor, method] {
    (coordinator->*method)(*request, [response, reactor](absl::StatusOr<Response> answer) {
      if (answer.ok()) *response = *std::move(answer);
      reactor->Finish(ToGrpc(answer.status()));
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* SparsificationApi::GetServerInfo(Context* context, const v1::GetServerInfoRequest*,
                                                           v1::GetServerInfoResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Post([this, response, reactor] {
    coordinator_.GetServerInfo([response, reactor](absl::StatusOr<v1::GetServerInfoResponse> answer) {
      *response = *std::move(answer);
      reactor->Finish(grpc::Status::OK);
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* SparsificationApi::CreateRun(Context* context, const v1::CreateRunRequest* request,
                                                       v1::CreateRunResponse* response) {
  return Carry(context, request, response, &Coordinator::CreateRun);
}
grpc::ServerUnaryReactor* SparsificationApi::GetPlan(Context* context, const v1::GetPlanRequest* request,
                                                     v1::GetPlanResponse* response) {
  return Carry(context, request, response, &Coordinator::GetPlan);
}
grpc::ServerUnaryReactor* SparsificationApi::GetRun(Context* context, const v1::GetRunRequest* request,
                                                    v1::Run* response) {
  return Carry(context, request, response, &Coordinator::GetRun);
}
grpc::ServerUnaryReactor* SparsificationApi::ListRuns(Context* context, const v1::ListRunsRequest* request,
                                                      v1::ListRunsResponse* response) {
  return Carry(context, request, response, &Coordinator::ListRuns);
}
grpc::ServerUnaryReactor* SparsificationApi::DeleteRun(Context* context, const v1::DeleteRunRequest* request,
                                                       v1::DeleteRunResponse* response) {
  return Carry(context, request, response, &Coordinator::DeleteRun);
}
grpc::ServerUnaryReactor* SparsificationApi::CancelRun(Context* context, const v1::CancelRunRequest* request,
                                                       v1::Run* response) {
  return Carry(context, request, response, &Coordinator::CancelRun);
}
grpc::ServerUnaryReactor* SparsificationApi::FinishRun(Context* context, const v1::FinishRunRequest* request,
                                                       v1::Run* response) {
  return Carry(context, request, response, &Coordinator::FinishRun);
}
grpc::ServerUnaryReactor* SparsificationApi::SaveCheckpoint(Context* context, const v1::SaveCheckpointRequest* request,
                                                            v1::Operation* response) {
  return Carry(context, request, response, &Coordinator::SaveCheckpoint);
}
grpc::ServerUnaryReactor* SparsificationApi::CancelOperation(Context* context,
                                                             const v1::CancelOperationRequest* request,
                                                             v1::Operation* response) {
  return Carry(context, request, response, &Coordinator::CancelOperation);
}
grpc::ServerUnaryReactor* SparsificationApi::ListWorkers(Context* context, const v1::ListWorkersRequest* request,
                                                         v1::ListWorkersResponse* response) {
  return Carry(context, request, response, &Coordinator::ListWorkers);
}

grpc::ServerWriteReactor<v1::RunEvent>* SparsificationApi::WatchRun(Context*, const v1::WatchRunRequest* request) {
  const auto writer = StreamWriter<v1::RunEvent>::Make(kWatchRoom);
  loop_.Post([this, request = *request, writer] { coordinator_.WatchRun(request, writer); });
  return writer.get();
}

grpc::ServerWriteReactor<v1::ComputeSparsityReportResponse>* SparsificationApi::ComputeSparsityReport(
    Context*, const v1::ComputeSparsityReportRequest* request) {
  const auto writer = StreamWriter<v1::ComputeSparsityReportResponse>::Make(kReportRoom);
  loop_.Post([this, request = *request, writer] { coordinator_.ComputeSparsityReport(request, writer); });
  return writer.get();
}

grpc::ServerWriteReactor<v1::ReadParameterResponse>* SparsificationApi::ReadParameter(
    Context*, const v1::ReadParameterRequest* request) {
  const auto writer = StreamWriter<v1::ReadParameterResponse>::Make(kChunkRoom);
  loop_.Post([this, request = *request, writer] {
    coordinator_.ReadParameter(request, std::make_shared<ChunkWriter<v1::ReadParameterResponse>>(writer));
  });
  return writer.get();
}

grpc::ServerWriteReactor<v1::ReadMaskResponse>* SparsificationApi::ReadMask(Context*,
                                                                            const v1::ReadMaskRequest* request) {
  const auto writer = StreamWriter<v1::ReadMaskResponse>::Make(kChunkRoom);
  loop_.Post([this, request = *request, writer] {
    coordinator_.ReadMask(request, std::make_shared<ChunkWriter<v1::ReadMaskResponse>>(writer));
  });
  return writer.get();
}

}  // namespace espalier
