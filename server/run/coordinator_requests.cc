// The RPCs of SparsificationService.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"
#include "proto/support/names.h"
#include "proto/support/status_macros.h"
#include "server/recipe/planner.h"
#include "server/run/coordinator.h"
#include "server/run/report_pages.h"
#include "server/run/requests.h"
#include "server/run/run_states.h"

namespace espalier {
namespace {

constexpr size_t kCachedPlans = 4;
constexpr int kMaxPageSize = 5000;
constexpr int64_t kMaxChunkBytes = int64_t{1} << 20;
constexpr size_t kMaxReasonBytes = 1000;
// A modifier travels to the worker that writes the manifest in one message.
constexpr size_t kMaxModifierBytes = size_t{3} << 20;

google::protobuf::Duration ToProtoDuration(absl::Duration duration) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(duration));
}

v1::Operation OperationNamed(const v1::Run& run, const std::string& name) {
  for (const v1::Operation& operation : run.operations()) {
    if (operation.name() == name) return operation;
  }
  return {};
}

absl::Status CheckPlanSize(const v1::Plan& plan) {
  for (const v1::PlannedModifier& modifier : plan.modifiers()) {
    const size_t bytes = modifier.ByteSizeLong();
    if (bytes <= kMaxModifierBytes) continue;
    return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                     absl::StrCat("modifier ", modifier.type(), " owns ", modifier.parameters_size(), " parameters, ",
                                  bytes, " bytes of names, at most ", kMaxModifierBytes, "; split it into several"),
                     {{"limit", absl::StrCat(kMaxModifierBytes)}, {"value", absl::StrCat(bytes)}});
  }
  return absl::OkStatus();
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

template <typename Request, typename Response>
void Coordinator::Mutate(absl::string_view method, const Request& request, Reply<Response> reply,
                         std::function<void(const RowsOf<Response>& rows_of, Reply<Response> done)> execute) {
  const absl::Status ready = Ready();
  if (!ready.ok()) return reply(ready);
  const std::string id = request.request_id();
  Request payload = request;
  payload.clear_request_id();
  const RequestLedger::Reply parse = [reply](const absl::StatusOr<std::string>& answer) {
    if (!answer.ok()) return reply(answer.status());
    Response response;
    response.ParseFromString(*answer);
    reply(std::move(response));
  };
  if (!ledger_.Begin(method, id, payload.SerializeAsString(), parse)) return;
  const RowsOf<Response> rows_of = [this, id](std::function<Response(const v1::Run&)> answer) -> ExtraRows {
    return [this, id, answer = std::move(answer)](const v1::Run& run) {
      return ledger_.Row(id, answer(run).SerializeAsString());
    };
  };
  execute(rows_of, [this, id, parse](absl::StatusOr<Response> response) {
    ledger_.Finish(id, response.ok() ? absl::StatusOr<std::string>(response->SerializeAsString()) : response.status(),
                   parse);
  });
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

// --- plans and new runs

void Coordinator::PlanSpec(const v1::RunSpec& spec, Planned done) {
  v1::InspectModel question;
  question.set_path(spec.model_path());
  question.set_output_path(spec.output_path());
  question.set_overwrite(spec.overwrite());
  question.set_ignore_stored_masks(spec.ignore_stored_masks());
  inspector_.Inspect(question, [spec, done = std::move(done)](absl::StatusOr<v1::ModelDescription> model) {
    if (!model.ok()) return done(model.status());
    PlanOptions options;
    options.worker_kind = spec.worker_kind();
    options.world_size = spec.world_size();
    absl::StatusOr<v1::Plan> plan = MakePlan(spec.recipe(), spec.recipe_name(), *model, options);
    if (!plan.ok()) return done(plan.status());
    v1::PlanSummary summary = SummarizePlan(*plan);
    done(CachedPlan{"", *std::move(plan), std::move(summary), *std::move(model)});
  });
}

void Coordinator::CreateRun(const v1::CreateRunRequest& request, Reply<v1::CreateRunResponse> reply) {
  Mutate<v1::CreateRunRequest, v1::CreateRunResponse>(
      "CreateRun", request, std::move(reply),
      [this, request](const RowsOf<v1::CreateRunResponse>& rows_of, Reply<v1::CreateRunResponse> done) {
        const absl::StatusOr<v1::RunSpec> spec = CompleteSpec(request.spec(), options_.model_roots);
        if (!spec.ok()) return done(spec.status());
        PlanSpec(*spec, [this, request, rows_of, done, spec = *spec](absl::StatusOr<CachedPlan> planned) {
          if (!planned.ok()) return done(planned.status());
          for (const absl::Status& status :
               {CheckRunnable(planned->plan, spec.worker_kind()), CheckPlanSize(planned->plan)}) {
            if (!status.ok()) return done(status);
          }
          const int idle = static_cast<int>(registry_.Idle().size());
          const bool wait = !request.has_wait_for_workers() || request.wait_for_workers();
          if (!wait && (idle < spec.world_size() || !queue_.empty())) {
            return done(MakeError(v1::ERROR_REASON_WORKERS_MISSING,
                                  absl::StrCat("need ", spec.world_size(), " idle workers, have ", idle,
                                               queue_.empty() ? "" : ", and other runs wait for them",
                                               "; start more, or let the run wait"),
                                  {{"have", absl::StrCat(idle)}, {"need", absl::StrCat(spec.world_size())}}));
          }
          RunEntry entry;
          entry.spec = spec;
          entry.plan = std::move(planned->plan);
          entry.summary = std::move(planned->summary);
          entry.model = std::move(planned->model);
          v1::Run& run = entry.run;
          run.set_worker_kind(spec.worker_kind());
          run.set_world_size(spec.world_size());
          run.set_model_path(spec.model_path());
          run.set_output_path(spec.output_path());
          run.set_hold(spec.hold());
          run.set_updates_total(entry.plan.updates_size());
          if (!queue_.empty()) run.set_state_reason(absl::StrCat("behind ", queue_.back()));
          const auto answer = [summary = entry.summary](const v1::Run& run) {
            v1::CreateRunResponse response;
            *response.mutable_run() = run;
            *response.mutable_run()->mutable_plan() = summary;
            return response;
          };
          if (request.validate_only()) {
            run.set_state(v1::Run::STATE_QUEUED);
            return done(answer(run));
          }
          const absl::StatusOr<RunEntry*> created = store_.Create(std::move(entry), rows_of(answer));
          if (!created.ok()) return done(created.status());
          queue_.push_back((*created)->run.name());
          done(answer((*created)->run));
          ScheduleSoon();
        });
      });
}

void Coordinator::GetPlan(const v1::GetPlanRequest& request, Reply<v1::GetPlanResponse> reply) {
  const absl::Status ready = Ready();
  if (!ready.ok()) return reply(ready);
  if (!request.name().empty()) {
    const absl::StatusOr<RunEntry*> entry = store_.Get(request.name());
    if (!entry.ok()) return reply(entry.status());
    return reply(
        PlanPage((*entry)->plan, (*entry)->summary, (*entry)->model, request.page_size(), request.page_token()));
  }
  const absl::StatusOr<v1::RunSpec> spec = CompleteSpec(request.spec(), options_.model_roots);
  if (!spec.ok()) return reply(spec.status());
  const auto answer = [request, reply](const CachedPlan& plan) {
    reply(PlanPage(plan.plan, plan.summary, plan.model, request.page_size(), request.page_token()));
  };
  // Later pages come from the plan that the first one was cut from, while it is remembered.
  const std::string key = spec->SerializeAsString();
  const auto known = std::find_if(plans_.begin(), plans_.end(), [&](const CachedPlan& p) { return p.key == key; });
  if (!request.page_token().empty() && known != plans_.end()) return answer(*known);
  PlanSpec(*spec, [this, key, reply, answer](absl::StatusOr<CachedPlan> planned) {
    if (!planned.ok()) return reply(planned.status());
    planned->key = key;
    plans_.erase(std::remove_if(plans_.begin(), plans_.end(), [&](const CachedPlan& p) { return p.key == key; }),
                 plans_.end());
    if (plans_.size() >= kCachedPlans) plans_.pop_front();
    plans_.push_back(*std::move(planned));
    answer(plans_.back());
  });
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
