// The RPCs of SparsificationService.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"
#include "proto/support/names.h"
#include "proto/support/status_macros.h"
#include "server/run/coordinator.h"
#include "server/run/coordinator_mutate.h"
#include "server/run/report_pages.h"
#include "server/run/requests.h"
#include "server/run/run_states.h"

namespace espalier {
namespace {

constexpr int64_t kMaxChunkBytes = int64_t{1} << 20;
constexpr size_t kMaxReasonBytes = 1000;

google::protobuf::Duration ToProtoDuration(absl::Duration duration) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(duration));
}

v1::Operation OperationNamed(const v1::Run& run, const std::string& name) {
  for (const v1::Operation& operation : run.operations()) {
    if (operation.name() == name) return operation;
  }
  return {};
}

}  // namespace

absl::Status Coordinator::Ready() const {
  if (!draining_) return absl::OkStatus();
  return MakeError(v1::ERROR_REASON_DRAINING, "the coordinator is shutting down; try again when it is back");
}

v1::Run Coordinator::FullRun(const RunEntry& entry) const {
  v1::Run run = entry.run;
  *run.mutable_plan() = entry.summary;
  return run;
}

void Coordinator::GetServerInfo(Reply<v1::GetServerInfoResponse> reply) {
  v1::GetServerInfoResponse response;
  response.set_version(ESPALIER_VERSION);
  response.add_api_versions("v1");
  response.set_instance_id(instance_id_);
  response.set_max_recipe_bytes(kMaxRecipeBytes);
  response.set_max_chunk_bytes(kMaxChunkBytes);
  response.set_max_page_size(kMaxPageSize);
  response.set_max_watchers(static_cast<int>(options_.store.max_watchers));
  response.set_max_events_per_run(static_cast<int64_t>(options_.store.max_events));
  *response.mutable_lease() = ToProtoDuration(options_.lease.lease);
  *response.mutable_heartbeat_interval() = ToProtoDuration(options_.lease.heartbeat_interval);
  for (const std::string& root : options_.model_roots) response.add_model_roots(root);
  reply(std::move(response));
}

Snapshot Coordinator::TakeSnapshot(const std::string& run) const {
  constexpr size_t kRuns = 50;
  Snapshot snapshot;
  snapshot.workers = registry_.List();
  snapshot.draining = draining_;
  const RunEntry* shown = nullptr;
  const auto& all = store_.ordered();
  snapshot.runs_in_all = all.size();
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const RunEntry& entry = *it->second;
    if (snapshot.runs.size() < kRuns) snapshot.runs.push_back(entry.run);
    if (shown == nullptr && (run.empty() || entry.run.name() == run)) shown = &entry;
  }
  if (shown == nullptr) return snapshot;
  snapshot.run = shown->run;
  snapshot.plan = shown->summary;
  if (!shown->events.empty() && !IsTerminal(shown->run.state())) snapshot.progress = shown->events.back().progress();
  if (shown->report) snapshot.rows.assign(shown->report->parameters().begin(), shown->report->parameters().end());
  return snapshot;
}

// --- runs

void Coordinator::GetRun(const v1::GetRunRequest& request, Reply<v1::Run> reply) {
  const absl::StatusOr<RunEntry*> entry = store_.Get(request.name());
  if (!entry.ok()) return reply(entry.status());
  reply(FullRun(**entry));
}

void Coordinator::ListRuns(const v1::ListRunsRequest& request, Reply<v1::ListRunsResponse> reply) {
  const absl::StatusOr<int> size = PageSize(request.page_size(), 50, 1000);
  if (!size.ok()) return reply(size.status());
  // The sequence number of the last run of the page before: what is made or deleted meanwhile moves nothing.
  const absl::StatusOr<int64_t> before = ReadPageToken(request.page_token(), "r", 0);
  if (!before.ok()) return reply(before.status());
  const auto& all = store_.ordered();
  v1::ListRunsResponse response;
  auto it = std::make_reverse_iterator(*before < 0 ? all.end() : all.lower_bound(*before));
  for (; it != all.rend(); ++it) {
    if (response.runs_size() == *size) {
      response.set_next_page_token(MakePageToken("r", std::prev(it)->first, 0));
      break;
    }
    *response.add_runs() = it->second->run;
  }
  reply(std::move(response));
}

void Coordinator::DeleteRun(const v1::DeleteRunRequest& request, Reply<v1::DeleteRunResponse> reply) {
  Mutate<v1::DeleteRunRequest, v1::DeleteRunResponse>(
      "DeleteRun", request, std::move(reply),
      [this, request](const RowsOf<v1::DeleteRunResponse>& rows_of, const Reply<v1::DeleteRunResponse>& done) {
        const absl::StatusOr<RunEntry*> entry = store_.Get(request.name());
        if (!entry.ok()) return done(entry.status());
        if (!IsTerminal((*entry)->run.state()) || drivers_.contains((*entry)->run.name())) {
          return done(IllegalFromState((*entry)->run, "delete it", "cancel it first, and let its workers go"));
        }
        const absl::Status status =
            store_.Delete(**entry, rows_of([](const v1::Run&) { return v1::DeleteRunResponse(); }));
        if (!status.ok()) return done(status);
        done(v1::DeleteRunResponse());
      });
}

void Coordinator::CancelRun(const v1::CancelRunRequest& request, Reply<v1::Run> reply) {
  Mutate<v1::CancelRunRequest, v1::Run>(
      "CancelRun", request, std::move(reply),
      [this, request](const RowsOf<v1::Run>& rows_of, const Reply<v1::Run>& done) {
        const absl::StatusOr<RunEntry*> found = store_.Get(request.name());
        if (!found.ok()) return done(found.status());
        RunEntry& entry = **found;
        const auto answer = [summary = entry.summary](const v1::Run& run) {
          v1::Run full = run;
          *full.mutable_plan() = summary;
          return full;
        };
        const std::string reason = request.reason().substr(0, kMaxReasonBytes);
        const v1::Run::State state = entry.run.state();
        absl::Status status;
        if (state == v1::Run::STATE_CANCELLED || state == v1::Run::STATE_CANCELLING) {
          status = journal_.Append(rows_of(answer)(entry.run));
        } else if (state == v1::Run::STATE_QUEUED) {
          const absl::Time now = loop_.clock().Wall();
          const absl::Status error =
              MakeError(v1::ERROR_REASON_CANCELLED,
                        absl::StrCat(entry.run.name(), " was cancelled", reason.empty() ? "" : ": ", reason),
                        {{"run", entry.run.name()}});
          status = store_.Commit(
              entry, {"StateChanged", std::string(error.message()), {}},
              [&](v1::Run& run) {
                MoveTo(run, v1::Run::STATE_CANCELLED, "", now);
                *run.mutable_error() = ToProto(error);
              },
              rows_of(answer));
          if (status.ok()) ReleaseQueued(entry.run.name());
          ScheduleSoon();
        } else if (const auto driver = drivers_.find(entry.run.name()); driver != drivers_.end()) {
          status = driver->second->Cancel(reason, rows_of(answer));
        } else {
          status = IllegalFromState(entry.run, "cancel it", "it has ended");
        }
        if (!status.ok()) return done(status);
        done(FullRun(entry));
      });
}

void Coordinator::FinishRun(const v1::FinishRunRequest& request, Reply<v1::Run> reply) {
  Mutate<v1::FinishRunRequest, v1::Run>(
      "FinishRun", request, std::move(reply),
      [this, request](const RowsOf<v1::Run>& rows_of, const Reply<v1::Run>& done) {
        const absl::StatusOr<RunDriver*> driver = DriverOf(request.name(), "finish it");
        if (!driver.ok()) return done(driver.status());
        const RunEntry& entry = **store_.Get(request.name());
        const absl::Status status = (*driver)->Finish(rows_of([summary = entry.summary](const v1::Run& run) {
          v1::Run full = run;
          *full.mutable_plan() = summary;
          return full;
        }));
        if (!status.ok()) return done(status);
        done(FullRun(entry));
      });
}

absl::StatusOr<RunDriver*> Coordinator::DriverOf(const std::string& name, absl::string_view what) {
  ESPALIER_RETURN_IF_ERROR(Ready());
  ESPALIER_ASSIGN_OR_RETURN(const RunEntry* entry, store_.Get(name));
  const auto driver = drivers_.find(entry->run.name());
  if (driver == drivers_.end()) {
    return IllegalFromState(entry->run, what, "that needs a RUNNING run (keep one with hold)");
  }
  return driver->second.get();
}

void Coordinator::SaveCheckpoint(const v1::SaveCheckpointRequest& request, Reply<v1::Operation> reply) {
  Mutate<v1::SaveCheckpointRequest, v1::Operation>(
      "SaveCheckpoint", request, std::move(reply),
      [this, request](const RowsOf<v1::Operation>& rows_of, const Reply<v1::Operation>& done) {
        const absl::StatusOr<RunDriver*> driver = DriverOf(request.name(), "save it");
        if (!driver.ok()) return done(driver.status());
        const absl::Status path = CheckPath(request.path(), "path", options_.model_roots);
        if (!path.ok()) return done(path);
        if (request.max_shard_bytes() < 0) {
          return done(MakeError(v1::ERROR_REASON_REQUEST_INVALID, "max_shard_bytes: is negative",
                                {{"field", "max_shard_bytes"}}));
        }
        if (!v1::CheckpointFormat_IsValid(request.format())) {
          return done(MakeError(v1::ERROR_REASON_REQUEST_INVALID, "format: is unknown", {{"field", "format"}}));
        }
        done((*driver)->Save(request,
                             rows_of([](const v1::Run& run) { return run.operations(run.operations_size() - 1); })));
      });
}

void Coordinator::CancelOperation(const v1::CancelOperationRequest& request, Reply<v1::Operation> reply) {
  Mutate<v1::CancelOperationRequest, v1::Operation>(
      "CancelOperation", request, std::move(reply),
      [this, request](const RowsOf<v1::Operation>& rows_of, const Reply<v1::Operation>& done) {
        const auto name = ParseOperationName(request.name());
        if (!name.ok()) return done(name.status());
        const RunEntry* entry = store_.Find(name->first);
        const v1::Operation present = entry == nullptr ? v1::Operation() : OperationNamed(entry->run, request.name());
        if (present.name().empty()) {
          return done(MakeError(v1::ERROR_REASON_OPERATION_NOT_FOUND,
                                absl::StrCat("there is no operation ", request.name()),
                                {{"operation", request.name()}}));
        }
        const auto driver = drivers_.find(name->first);
        if (driver == drivers_.end() || present.state() != v1::Operation::STATE_RUNNING) return done(present);
        done(driver->second->CancelOperation(request.name(), rows_of([name = request.name()](const v1::Run& run) {
                                               return OperationNamed(run, name);
                                             })));
      });
}

void Coordinator::ListWorkers(const v1::ListWorkersRequest& request, Reply<v1::ListWorkersResponse> reply) {
  const absl::StatusOr<int> size = PageSize(request.page_size(), 100, 1000);
  if (!size.ok()) return reply(size.status());
  // The token is the last name of the page before.
  const std::string after = request.page_token();
  if (!after.empty() && !IsValidId(after)) {
    return reply(
        MakeError(v1::ERROR_REASON_REQUEST_INVALID, "page_token: is not one of this list", {{"field", "page_token"}}));
  }
  v1::ListWorkersResponse response;
  for (v1::Worker& worker : registry_.List()) {
    if (!after.empty() && worker.name() <= WorkerName(after)) continue;
    if (response.workers_size() == *size) {
      const std::string& last = response.workers(*size - 1).name();
      response.set_next_page_token(last.substr(last.find('/') + 1));
      break;
    }
    *response.add_workers() = std::move(worker);
  }
  reply(std::move(response));
}

// --- streams

void Coordinator::WatchRun(const v1::WatchRunRequest& request, std::shared_ptr<RunStore::Sink> sink) {
  const absl::StatusOr<RunEntry*> entry = store_.Get(request.name());
  if (!entry.ok()) return sink->Finish(entry.status());
  if (draining_) return sink->Finish(Ready());
  const RunStore::WatcherId id = store_.Watch(**entry, request.resume_revision(), sink);
  if (id == 0) return;
  sink->OnChange([this, id, alive = std::weak_ptr<bool>(alive_), &loop = loop_] {
    loop.Post([this, id, alive] {
      if (!alive.expired()) store_.Pump(id);
    });
  });
  store_.Pump(id);
}

void Coordinator::ComputeSparsityReport(const v1::ComputeSparsityReportRequest& request,
                                        std::shared_ptr<RunDriver::ReportSink> sink) {
  const absl::StatusOr<RunEntry*> found = store_.Get(request.name());
  if (!found.ok()) return sink->Finish(found.status());
  if (request.mode() == v1::REPORT_MODE_FILES || !v1::ReportMode_IsValid(request.mode())) {
    return sink->Finish(MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                                  "mode: a live run is counted by SHARD_COUNTS or GATHER", {{"field", "mode"}}));
  }
  const RunEntry& entry = **found;
  if (IsTerminal(entry.run.state()) && entry.report && request.mode() == v1::REPORT_MODE_UNSPECIFIED) {
    return WriteReport(*entry.report, *sink);
  }
  const absl::StatusOr<RunDriver*> driver = DriverOf(request.name(), "compute a report");
  const absl::Status status = driver.ok() ? (*driver)->Report(request.mode(), sink) : driver.status();
  if (!status.ok()) sink->Finish(status);
}

void Coordinator::Gather(const std::string& run, const absl::StatusOr<v1::GatherParameter>& op,
                         std::shared_ptr<ChunkSink> sink) {
  if (!op.ok()) return sink->Finish(op.status());
  const absl::StatusOr<RunDriver*> driver = DriverOf(run, op->mask() ? "read a mask" : "read a parameter");
  const absl::Status status = driver.ok() ? (*driver)->Gather(*op, sink) : driver.status();
  if (!status.ok()) sink->Finish(status);
}

void Coordinator::ReadParameter(const v1::ReadParameterRequest& request, std::shared_ptr<ChunkSink> sink) {
  const auto op = [&]() -> absl::StatusOr<v1::GatherParameter> {
    ESPALIER_ASSIGN_OR_RETURN(const RunEntry* entry, store_.Get(request.name()));
    ESPALIER_ASSIGN_OR_RETURN(const v1::Parameter* parameter, FindParameter(entry->model, request.parameter()));
    return GatherRange(*parameter, request.begin(), request.end());
  };
  Gather(request.name(), op(), std::move(sink));
}

void Coordinator::ReadMask(const v1::ReadMaskRequest& request, std::shared_ptr<ChunkSink> sink) {
  const auto op = [&]() -> absl::StatusOr<v1::GatherParameter> {
    ESPALIER_ASSIGN_OR_RETURN(const RunEntry* entry, store_.Get(request.name()));
    ESPALIER_ASSIGN_OR_RETURN(const v1::Parameter* parameter, FindParameter(entry->model, request.parameter()));
    ESPALIER_ASSIGN_OR_RETURN(v1::GatherParameter op, GatherRange(*parameter, 0, 0));
    op.set_mask(true);
    return op;
  };
  Gather(request.name(), op(), std::move(sink));
}

}  // namespace espalier
