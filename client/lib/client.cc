#include "client/lib/client.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/lib/download.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/impl/client_unary_call.h"
#include "proto/support/backoff.h"
#include "proto/support/channel.h"
#include "proto/support/errors.h"
#include "proto/support/grpc_status.h"
#include "proto/support/options.h"
#include "proto/support/status_macros.h"
#include "proto/support/uuid.h"

namespace espalier {
namespace {

// One stream of a watch lives at most this long and is then resumed, so that a coordinator that answers pings and nothing
// else cannot hold a watcher for ever.
constexpr absl::Duration kWatchStream = absl::Minutes(10);
constexpr int kPage = 1000;

bool IsTransient(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable) return false;
  const v1::ErrorReason reason = ReasonOf(status);
  return reason == v1::ERROR_REASON_UNSPECIFIED || reason == v1::ERROR_REASON_DRAINING;
}

uint64_t Seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

template <typename Request>
void GiveId(Request& request) {
  if (request.request_id().empty()) request.set_request_id(NewUuid());
}

}  // namespace

bool IsTerminal(v1::Run::State state) {
  return state == v1::Run::STATE_SUCCEEDED || state == v1::Run::STATE_FAILED || state == v1::Run::STATE_CANCELLED;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  ESPALIER_RETURN_IF_ERROR(CheckAddress("coordinator", options.address));
  return std::unique_ptr<Client>(new Client(std::move(options)));
}

Client::Client(ClientOptions options)
    : options_(std::move(options)), channel_(DialCoordinator(options_.address)), stub_(new Stub(channel_)) {}

absl::Status Client::Connect(absl::Time deadline) {
  ConnectOptions connect = options_.connect;
  connect.silent = std::max(absl::ZeroDuration(), std::min(connect.silent, deadline - absl::Now()));
  return WaitConnected(*channel_, options_.address, connect);
}

absl::Status Client::Explain(const absl::Status& status, absl::string_view operation) const {
  if (status.ok() || ReasonOf(status) != v1::ERROR_REASON_UNSPECIFIED) return status;
  if (status.code() == absl::StatusCode::kUnavailable) return Unreachable(options_.address, status.message());
  if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    return MakeError(
        v1::ERROR_REASON_DEADLINE,
        absl::StrCat(operation, " at ", options_.address, " did not answer in time; see its log, and repeat"),
        {{"operation", std::string(operation)}, {"address", options_.address}});
  }
  if (status.code() == absl::StatusCode::kUnimplemented) {
    return absl::UnimplementedError(
        absl::StrCat("what answers at ", options_.address, " does not know ", operation,
                     ": it is of another release than this client (", ESPALIER_VERSION,
                     "), or no coordinator; install the same release on both (espalier health shows its own)"));
  }
  return absl::Status(status.code(), absl::StrCat(operation, " at ", options_.address, ": ", status.message()));
}

absl::Status Client::Retry(absl::string_view operation, const std::function<absl::Status(absl::Time)>& attempt) {
  const absl::Time deadline = absl::Now() + options_.call_timeout;
  Backoff backoff({}, Seed());
  while (true) {
    ESPALIER_RETURN_IF_ERROR(Connect(deadline));
    const absl::Status status = attempt(deadline);
    if (!IsTransient(status)) return Explain(status, operation);
    const absl::Duration delay = backoff.Next();
    if (absl::Now() + delay >= deadline) return Explain(status, operation);
    absl::SleepFor(delay);
  }
}

template <typename Request, typename Response>
absl::StatusOr<Response> Client::Call(absl::string_view operation,
                                      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                      const Request& request) {
  Response response;
  ESPALIER_RETURN_IF_ERROR(Retry(operation, [&](absl::Time deadline) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    response.Clear();
    return FromGrpc(((*stub_).*method)(&context, request, &response));
  }));
  return response;
}

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo() {
  return Call("GetServerInfo", &Stub::GetServerInfo, v1::GetServerInfoRequest());
}

absl::StatusOr<v1::Run> Client::CreateRun(v1::CreateRunRequest request) {
  GiveId(request);
  ESPALIER_ASSIGN_OR_RETURN(v1::CreateRunResponse response, Call("CreateRun", &Stub::CreateRun, request));
  return std::move(*response.mutable_run());
}

absl::StatusOr<FullPlan> Client::GetPlan(v1::GetPlanRequest request) {
  FullPlan plan;
  request.set_page_size(kPage);
  do {
    ESPALIER_ASSIGN_OR_RETURN(const v1::GetPlanResponse page, Call("GetPlan", &Stub::GetPlan, request));
    if (request.page_token().empty()) plan.summary = page.summary();
    plan.parameters.insert(plan.parameters.end(), page.parameters().begin(), page.parameters().end());
    plan.left_out.insert(plan.left_out.end(), page.left_out().begin(), page.left_out().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return plan;
}

absl::StatusOr<v1::Run> Client::GetRun(const std::string& name) {
  v1::GetRunRequest request;
  request.set_name(name);
  return Call("GetRun", &Stub::GetRun, request);
}

absl::StatusOr<std::vector<v1::Run>> Client::ListRuns(int limit) {
  std::vector<v1::Run> runs;
  v1::ListRunsRequest request;
  do {
    request.set_page_size(std::min(limit - static_cast<int>(runs.size()), kPage));
    ESPALIER_ASSIGN_OR_RETURN(const v1::ListRunsResponse page, Call("ListRuns", &Stub::ListRuns, request));
    runs.insert(runs.end(), page.runs().begin(), page.runs().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && static_cast<int>(runs.size()) < limit);
  return runs;
}

absl::Status Client::DeleteRun(const std::string& name) {
  v1::DeleteRunRequest request;
  request.set_name(name);
  GiveId(request);
  return Call("DeleteRun", &Stub::DeleteRun, request).status();
}

absl::StatusOr<v1::Run> Client::CancelRun(const std::string& name, const std::string& reason) {
  v1::CancelRunRequest request;
  request.set_name(name);
  request.set_reason(reason);
  GiveId(request);
  return Call("CancelRun", &Stub::CancelRun, request);
}

absl::StatusOr<v1::Run> Client::FinishRun(const std::string& name) {
  v1::FinishRunRequest request;
  request.set_name(name);
  GiveId(request);
  return Call("FinishRun", &Stub::FinishRun, request);
}

absl::StatusOr<v1::Operation> Client::SaveCheckpoint(v1::SaveCheckpointRequest request) {
  GiveId(request);
  return Call("SaveCheckpoint", &Stub::SaveCheckpoint, request);
}

absl::StatusOr<v1::Operation> Client::CancelOperation(const std::string& name) {
  v1::CancelOperationRequest request;
  request.set_name(name);
  GiveId(request);
  return Call("CancelOperation", &Stub::CancelOperation, request);
}

absl::StatusOr<std::vector<v1::Worker>> Client::ListWorkers() {
  std::vector<v1::Worker> workers;
  v1::ListWorkersRequest request;
  request.set_page_size(kPage);
  do {
    ESPALIER_ASSIGN_OR_RETURN(const v1::ListWorkersResponse page, Call("ListWorkers", &Stub::ListWorkers, request));
    workers.insert(workers.end(), page.workers().begin(), page.workers().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return workers;
}

absl::StatusOr<SparsityReport> Client::ComputeSparsityReport(const std::string& name, v1::ReportMode mode) {
  v1::ComputeSparsityReportRequest request;
  request.set_name(name);
  request.set_mode(mode);
  SparsityReport report;
  // A gather may take longer than a unary call; what came before a broken stream is dropped.
  ESPALIER_RETURN_IF_ERROR(Retry("ComputeSparsityReport", [&](absl::Time) {
    report = SparsityReport();
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + options_.stream_timeout));
    const auto reader = stub_->ComputeSparsityReport(&context, request);
    v1::ComputeSparsityReportResponse part;
    bool complete = false;
    while (reader->Read(&part)) {
      if (part.has_page()) {
        for (v1::ParameterSparsity& row : *part.mutable_page()->mutable_parameters()) {
          report.parameters.push_back(std::move(row));
        }
      } else if (part.has_summary()) {
        report.summary = part.summary().sparsity();
        report.provenance = part.summary().provenance();
        complete = true;
      }
    }
    const grpc::Status status = reader->Finish();
    if (status.ok() && !complete) {
      return MakeError(v1::ERROR_REASON_INVARIANT, "the report ended without its summary; repeat it",
                       {{"what", "no summary"}, {"where", "ComputeSparsityReport"}});
    }
    return FromGrpc(status);
  }));
  return report;
}

template <typename Response>
absl::Status Client::Download(absl::string_view operation, grpc::ClientReader<Response>& reader,
                              const DownloadSink& sink) {
  DownloadCheck check;
  Response part;
  while (reader.Read(&part)) {
    if (part.has_header()) {
      ESPALIER_RETURN_IF_ERROR(check.OnHeader(part.header()));
      ESPALIER_RETURN_IF_ERROR(sink.header(part.header()));
    }
    if (part.has_chunk()) {
      ESPALIER_RETURN_IF_ERROR(check.OnChunk(part.chunk()));
      ESPALIER_RETURN_IF_ERROR(sink.data(part.chunk().data()));
    }
  }
  ESPALIER_RETURN_IF_ERROR(Explain(FromGrpc(reader.Finish()), operation));
  return check.OnEnd();
}

absl::Status Client::ReadParameter(const v1::ReadParameterRequest& request, const DownloadSink& sink) {
  ESPALIER_RETURN_IF_ERROR(Connect(absl::InfiniteFuture()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options_.stream_timeout));
  return Download("ReadParameter", *stub_->ReadParameter(&context, request), sink);
}

absl::Status Client::ReadMask(const v1::ReadMaskRequest& request, const DownloadSink& sink) {
  ESPALIER_RETURN_IF_ERROR(Connect(absl::InfiniteFuture()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options_.stream_timeout));
  return Download("ReadMask", *stub_->ReadMask(&context, request), sink);
}

absl::Status Client::WatchRun(const std::string& name, int64_t resume_revision,
                              const std::function<bool(const v1::RunEvent&)>& on_event, Cancellation* cancellation) {
  v1::WatchRunRequest request;
  request.set_name(name);
  request.set_resume_revision(resume_revision);
  Cancellation never;
  if (cancellation == nullptr) cancellation = &never;
  Backoff backoff({}, Seed());
  absl::Time give_up = absl::InfiniteFuture();
  bool terminal = false;
  bool begun = false;
  while (true) {
    absl::Status status = Connect(absl::InfiniteFuture());
    if (!status.ok() && !begun) return status;
    if (status.ok()) {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + kWatchStream));
      const Cancellation::Scope scope(cancellation, context);
      const auto reader = stub_->WatchRun(&context, request);
      v1::RunEvent event;
      bool wanted = true;
      while (wanted && reader->Read(&event)) {
        give_up = absl::InfiniteFuture();
        backoff.Reset();
        begun = true;
        request.set_resume_revision(std::max(request.resume_revision(), event.revision()));
        terminal = terminal || IsTerminal(event.run().state());
        wanted = on_event(event);
      }
      if (!wanted) context.TryCancel();
      status = FromGrpc(reader->Finish());
      if (!wanted) return absl::OkStatus();
    }
    if (cancellation->cancelled()) return absl::CancelledError("the watch was cancelled");
    if (status.ok() && !terminal) {
      // Nothing came after resume_revision: the run may have ended there.
      ESPALIER_ASSIGN_OR_RETURN(const v1::Run run, GetRun(name));
      terminal = IsTerminal(run.state()) && run.revision() <= request.resume_revision();
    }
    if (status.ok() && terminal) return status;
    if (ReasonOf(status) == v1::ERROR_REASON_HISTORY_COMPACTED) {
      request.set_resume_revision(0);
      continue;
    }
    const bool broken =
        status.ok() || IsTransient(status) || ReasonOf(status) == v1::ERROR_REASON_UNREACHABLE ||
        ReasonOf(status) == v1::ERROR_REASON_LIMIT_EXCEEDED ||
        (status.code() == absl::StatusCode::kDeadlineExceeded && ReasonOf(status) == v1::ERROR_REASON_UNSPECIFIED);
    if (!broken) return Explain(status, "WatchRun");
    if (give_up == absl::InfiniteFuture()) give_up = absl::Now() + options_.resume_timeout;
    if (absl::Now() >= give_up) {
      return status.ok() ? Unreachable(options_.address, "the watch ends at once") : Explain(status, "WatchRun");
    }
    if (!cancellation->Sleep(backoff.Next())) return absl::CancelledError("the watch was cancelled");
  }
}

absl::StatusOr<bool> Client::CheckHealth(const std::string& service) {
  // grpc.health.v1 has no header in Debian; both of its messages are one field, and an empty message keeps what it does
  // not know: HealthCheckRequest.service = 1 (string), HealthCheckResponse.status = 1 (enum, SERVING = 1).
  google::protobuf::Empty request;
  if (!service.empty()) request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(1, service);
  google::protobuf::Empty response;
  ESPALIER_RETURN_IF_ERROR(Retry("Health/Check", [&](absl::Time deadline) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    response.Clear();
    const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check", grpc::internal::RpcMethod::NORMAL_RPC);
    return FromGrpc(grpc::internal::BlockingUnaryCall<google::protobuf::Empty, google::protobuf::Empty>(
        channel_.get(), method, &context, request, &response));
  }));
  const auto& fields = response.GetReflection()->GetUnknownFields(response);
  return fields.field_count() == 1 && fields.field(0).number() == 1 &&
         fields.field(0).type() == google::protobuf::UnknownField::TYPE_VARINT && fields.field(0).varint() == 1;
}

}  // namespace espalier
