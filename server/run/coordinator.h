#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "espalier/v1/sparsification_service.pb.h"
#include "espalier/v1/worker_service.pb.h"
#include "server/fleet/worker_registry.h"
#include "server/run/event_loop.h"
#include "server/run/model_inspector.h"
#include "server/run/observer.h"
#include "server/run/request_ledger.h"
#include "server/run/run_driver.h"
#include "server/run/run_store.h"
#include "server/run/snapshot.h"
#include "server/run/upload_relay.h"
#include "server/store/journal.h"

namespace espalier {

struct CoordinatorOptions {
  LeaseOptions lease;
  RunTimeouts timeouts;  // `blame` is set to the lease
  RunStore::Options store;
  // Directories under which models and outputs must lie; empty: the workers decide.
  std::vector<std::string> model_roots;
  absl::Duration bookmark_interval = absl::Seconds(10);
  absl::Duration inspect_patience = absl::Seconds(60);
  // Told what happens; outlives the coordinator. Null: nobody is.
  Observer* observer = nullptr;
};

template <typename Response>
using Reply = std::function<void(absl::StatusOr<Response>)>;

// The whole coordinator behind its two services, without gRPC: each method is an RPC of SparsificationService (their
// comments specify) or an event of WorkerService. Every reply is called exactly once, from the loop. All methods, the
// constructor and the destructor are for the event loop (or while it does not run); replies may come at once.
class Coordinator : private FleetListener {
 public:
  // `journal` and `loop` outlive it.
  Coordinator(EventLoop& loop, Journal& journal, const CoordinatorOptions& options);
  ~Coordinator() override;

  // Reads the journal; before anything else. Runs that were live are FAILED from now on, those in the queue wait on.
  // JOURNAL_CORRUPT, STORAGE_UNWRITABLE.
  absl::Status Load();

  // Live runs end FAILED, streams end with DRAINING, all requests from now on are answered DRAINING.
  void Drain();

  void GetServerInfo(Reply<v1::GetServerInfoResponse> reply);
  void CreateRun(const v1::CreateRunRequest& request, Reply<v1::CreateRunResponse> reply);
  void GetPlan(const v1::GetPlanRequest& request, Reply<v1::GetPlanResponse> reply);
  void GetRun(const v1::GetRunRequest& request, Reply<v1::Run> reply);
  void ListRuns(const v1::ListRunsRequest& request, Reply<v1::ListRunsResponse> reply);
  void DeleteRun(const v1::DeleteRunRequest& request, Reply<v1::DeleteRunResponse> reply);
  void CancelRun(const v1::CancelRunRequest& request, Reply<v1::Run> reply);
  void FinishRun(const v1::FinishRunRequest& request, Reply<v1::Run> reply);
  void SaveCheckpoint(const v1::SaveCheckpointRequest& request, Reply<v1::Operation> reply);
  void CancelOperation(const v1::CancelOperationRequest& request, Reply<v1::Operation> reply);
  void ListWorkers(const v1::ListWorkersRequest& request, Reply<v1::ListWorkersResponse> reply);

  // Streams: the sink is always ended, now or later.
  void WatchRun(const v1::WatchRunRequest& request, std::shared_ptr<RunStore::Sink> sink);
  void ComputeSparsityReport(const v1::ComputeSparsityReportRequest& request,
                             std::shared_ptr<RunDriver::ReportSink> sink);
  void ReadParameter(const v1::ReadParameterRequest& request, std::shared_ptr<ChunkSink> sink);
  void ReadMask(const v1::ReadMaskRequest& request, std::shared_ptr<ChunkSink> sink);

  // For a page: `run` is a run's name, or empty for the newest.
  Snapshot TakeSnapshot(const std::string& run) const;

  // A worker's streams.
  WorkerRegistry& registry() { return registry_; }
  // Whose upload that is. OPERATION_NOT_FOUND when nobody waits for it, GENERATION_STALE from another incarnation.
  absl::StatusOr<std::shared_ptr<UploadRelay>> FindUpload(const v1::UploadParameterRequest& first);

 private:
  struct CachedPlan {
    std::string key;     // the spec, serialized
    uint32_t check = 0;  // of its pages' tokens
    v1::Plan plan;
    v1::PlanSummary summary;
    v1::ModelDescription model;
  };
  struct PendingDiscard {
    Discard discard;
    int attempts = 0;
    bool in_flight = false;
  };
  using Planned = std::function<void(absl::StatusOr<CachedPlan>)>;
  template <typename Response>
  using RowsOf = std::function<ExtraRows(std::function<Response(const v1::Run&)>)>;

  // FleetListener.
  void OnIdle() override;
  void OnSuspect(const std::string& worker, const std::string& reason) override;
  void OnLost(const std::string& worker, const std::string& reason) override;

  // coordinator.cc
  void Recover(RunEntry& entry);
  void Tick();
  void Bookmarks();
  void ExpireRequests();
  void ScheduleSoon();
  void Schedule();
  void StartRun(RunEntry& entry, std::vector<std::string> workers);
  void OnRunEnded(const std::string& run);
  void TryDiscards();
  void DiscardDone(const std::string& token, const absl::Status& status);
  void ReleaseQueued(const std::string& run);

  // coordinator_plans.cc
  void PlanSpec(const v1::RunSpec& spec, Planned done);

  // coordinator_requests.cc
  absl::Status Ready() const;
  v1::Run FullRun(const RunEntry& entry) const;
  absl::StatusOr<RunDriver*> DriverOf(const std::string& name, absl::string_view what);
  void Gather(const std::string& run, const absl::StatusOr<v1::GatherParameter>& op, std::shared_ptr<ChunkSink> sink);

  // Executes a mutating request once, whatever its id is repeated. `execute` gets what makes the journal rows of the
  // answer, to go with the effect, and what ends the request.
  template <typename Request, typename Response>
  void Mutate(absl::string_view method, const Request& request, Reply<Response> reply,
              std::function<void(const RowsOf<Response>& rows_of, Reply<Response> done)> execute);

  EventLoop& loop_;
  Journal& journal_;
  const CoordinatorOptions options_;
  Observer& observer_;
  const std::string instance_id_;
  WorkerRegistry registry_;
  RunStore store_;
  RequestLedger ledger_;
  ModelInspector inspector_;
  std::deque<std::string> queue_;  // of runs in QUEUED
  std::map<std::string, std::unique_ptr<RunDriver>> drivers_;
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<UploadRelay>> uploads_;  // by worker and command
  std::map<std::string, PendingDiscard> discards_;                                   // by token
  std::deque<CachedPlan> plans_;
  absl::Duration workers_told_ = -absl::InfiniteDuration();
  bool draining_ = false;
  bool schedule_posted_ = false;
  std::map<std::string, EventLoop::TimerId> timers_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace espalier
