#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/lib/cancellation.h"
#include "client/lib/connect.h"
#include "espalier/v1/sparsification_service.grpc.pb.h"

namespace espalier {

struct ClientOptions {
  std::string address = "127.0.0.1:4770";
  ConnectOptions connect;
  // Whole time of a unary call with all its retries.
  absl::Duration call_timeout = absl::Seconds(90);
  // Whole time of a report or a download.
  absl::Duration stream_timeout = absl::Minutes(30);
  // How long WatchRun tries to get a broken stream back.
  absl::Duration resume_timeout = absl::Seconds(30);
};

// All rows of a report and its sums.
struct SparsityReport {
  std::vector<v1::ParameterSparsity> parameters;
  v1::SparsitySummary summary;
  v1::Provenance provenance;
};

// A plan with all its pages.
struct FullPlan {
  v1::PlanSummary summary;
  std::vector<v1::PlannedParameter> parameters;
  std::vector<v1::LeftOut> left_out;
};

// Receives a download in order; an error ends it and is returned.
struct DownloadSink {
  std::function<absl::Status(const v1::ParameterHeader&)> header;
  // Bytes that follow the ones before; at most 1 MiB.
  std::function<absl::Status(absl::string_view)> data;
};

// Calls of SparsificationService. Blocking; thread-safe.
//
// Every call has a deadline. Errors carry the coordinator's reason; without an answer it is UNREACHABLE (address) or
// DEADLINE (operation). Which reasons a call answers with stands at its RPC. UNAVAILABLE - draining, a broken connection - is tried again until the deadline, with growing,
// jittered delays: reads are harmless, and mutations carry a request_id, which is made here where the request has none.
// Other errors are never retried.
class Client {
 public:
  // REQUEST_INVALID for a malformed address. Does not connect.
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options);

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo();
  absl::StatusOr<v1::Run> CreateRun(v1::CreateRunRequest request);
  // Of a run (name) or of a recipe and model (spec); page fields are set here.
  absl::StatusOr<FullPlan> GetPlan(v1::GetPlanRequest request);
  absl::StatusOr<v1::Run> GetRun(const std::string& name);
  // Newest first, at most `limit`.
  absl::StatusOr<std::vector<v1::Run>> ListRuns(int limit);
  absl::Status DeleteRun(const std::string& name);
  absl::StatusOr<v1::Run> CancelRun(const std::string& name, const std::string& reason);
  absl::StatusOr<v1::Run> FinishRun(const std::string& name);
  absl::StatusOr<v1::Operation> SaveCheckpoint(v1::SaveCheckpointRequest request);
  absl::StatusOr<v1::Operation> CancelOperation(const std::string& name);
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers();

  absl::StatusOr<SparsityReport> ComputeSparsityReport(const std::string& name, v1::ReportMode mode);

  // Chunk numbers, checksums and sizes are compared with what was announced; INVARIANT where they differ.
  absl::Status ReadParameter(const v1::ReadParameterRequest& request, const DownloadSink& sink);
  absl::Status ReadMask(const v1::ReadMaskRequest& request, const DownloadSink& sink);

  // Events with a revision above `resume_revision` (0: begin with a snapshot) in order and once each, on the calling
  // thread, until the run is terminal (OK), `on_event` returns false (OK) or `cancellation` is cancelled (CANCELLED). A
  // stream that breaks, or that the coordinator closes because it is read too slowly, is resumed after the last event;
  // where those events are gone, with a snapshot. Bookmarks are delivered too.
  absl::Status WatchRun(const std::string& name, int64_t resume_revision,
                        const std::function<bool(const v1::RunEvent&)>& on_event, Cancellation* cancellation = nullptr);

  // grpc.health.v1.Health/Check. True: SERVING. `service` empty: the whole server.
  absl::StatusOr<bool> CheckHealth(const std::string& service);

  const std::string& address() const { return options_.address; }

 private:
  using Stub = v1::SparsificationService::Stub;

  explicit Client(ClientOptions options);

  absl::Status Connect(absl::Time deadline);
  // What a failed call means to a caller: bare transport errors become UNREACHABLE, bare deadlines DEADLINE.
  absl::Status Explain(const absl::Status& status, absl::string_view operation) const;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(absl::string_view operation,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request);
  // `attempt` runs one try by the given deadline.
  absl::Status Retry(absl::string_view operation, const std::function<absl::Status(absl::Time)>& attempt);

  template <typename Response>
  absl::Status Download(absl::string_view operation, grpc::ClientReader<Response>& reader, const DownloadSink& sink);

  const ClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Stub> stub_;
};

// A terminal state: nothing follows it.
bool IsTerminal(v1::Run::State state);

}  // namespace espalier
