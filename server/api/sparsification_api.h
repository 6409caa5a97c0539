#pragma once

#include "espalier/v1/sparsification_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "server/run/coordinator.h"
#include "server/run/event_loop.h"

namespace espalier {

// SparsificationService on a Coordinator: carries requests to the event loop and answers back. Decides nothing. Called by
// gRPC's threads.
class SparsificationApi final : public v1::SparsificationService::CallbackService {
 public:
  // Both outlive the server.
  SparsificationApi(EventLoop& loop, Coordinator& coordinator) : loop_(loop), coordinator_(coordinator) {}

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  Unary* GetServerInfo(Context*, const v1::GetServerInfoRequest*, v1::GetServerInfoResponse*) override;
  Unary* CreateRun(Context*, const v1::CreateRunRequest*, v1::CreateRunResponse*) override;
  Unary* GetPlan(Context*, const v1::GetPlanRequest*, v1::GetPlanResponse*) override;
  Unary* GetRun(Context*, const v1::GetRunRequest*, v1::Run*) override;
  Unary* ListRuns(Context*, const v1::ListRunsRequest*, v1::ListRunsResponse*) override;
  Unary* DeleteRun(Context*, const v1::DeleteRunRequest*, v1::DeleteRunResponse*) override;
  Unary* CancelRun(Context*, const v1::CancelRunRequest*, v1::Run*) override;
  Unary* FinishRun(Context*, const v1::FinishRunRequest*, v1::Run*) override;
  Unary* SaveCheckpoint(Context*, const v1::SaveCheckpointRequest*, v1::Operation*) override;
  Unary* CancelOperation(Context*, const v1::CancelOperationRequest*, v1::Operation*) override;
  Unary* ListWorkers(Context*, const v1::ListWorkersRequest*, v1::ListWorkersResponse*) override;
  grpc::ServerWriteReactor<v1::RunEvent>* WatchRun(Context*, const v1::WatchRunRequest*) override;
  grpc::ServerWriteReactor<v1::ComputeSparsityReportResponse>* ComputeSparsityReport(
      Context*, const v1::ComputeSparsityReportRequest*) override;
  grpc::ServerWriteReactor<v1::ReadParameterResponse>* ReadParameter(Context*,
                                                                     const v1::ReadParameterRequest*) override;
  grpc::ServerWriteReactor<v1::ReadMaskResponse>* ReadMask(Context*, const v1::ReadMaskRequest*) override;

 private:
  template <typename Request, typename Response>
  Unary* Carry(Context* context, const Request* request, Response* response,
               void (Coordinator::*method)(const Request&, Reply<Response>));

  EventLoop& loop_;
  Coordinator& coordinator_;
};

}  // namespace espalier
