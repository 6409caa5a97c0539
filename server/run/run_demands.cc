// What a RUNNING run is asked for (reports, parameters, masks, saves), and the save at its end.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/support/errors.h"
#include "proto/support/names.h"
#include "proto/support/uuid.h"
#include "server/run/checks.h"
#include "server/run/report_pages.h"
#include "server/run/run_driver.h"
#include "server/run/run_states.h"

namespace espalier {
namespace {

constexpr int kKeptOperations = 20;

v1::Operation* FindOperation(v1::Run& run, const std::string& name) {
  for (v1::Operation& operation : *run.mutable_operations()) {
    if (operation.name() == name) return &operation;
  }
  return nullptr;
}

// Room for one more: drops the oldest that has ended. LIMIT_EXCEEDED when all still run.
absl::Status MakeRoom(v1::Run& run) {
  auto& all = *run.mutable_operations();
  if (all.size() < kKeptOperations) return absl::OkStatus();
  const auto ended = std::find_if(all.begin(), all.end(),
                                  [](const v1::Operation& o) { return o.state() != v1::Operation::STATE_RUNNING; });
  if (ended == all.end()) {
    return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                     absl::StrCat(run.name(), " has ", kKeptOperations, " saves in its queue; wait for one to end"),
                     {{"limit", absl::StrCat(kKeptOperations)}, {"value", "operations"}});
  }
  all.erase(ended);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunDriver::MustRun(absl::string_view what) const {
  if (run().state() == v1::Run::STATE_RUNNING) return absl::OkStatus();
  return IllegalFromState(run(), what, "that needs the live model of a RUNNING run (keep one with hold)");
}

void RunDriver::Enqueue(Demand demand) {
  demands_.push_back(std::move(demand));
  if (idle_) Next();
}

void RunDriver::EndDemand() {
  serving_.reset();
  Next();
}

// --- reports

void RunDriver::ComputeReport(v1::ReportMode mode, ReportDone done, std::function<void(const absl::Status&)> soft) {
  v1::Command command = NewCommand();
  command.mutable_report_sparsity()->set_mode(mode);
  const absl::Duration start = around_.loop.Now();
  const auto finish = [this, mode, start, done = std::move(done)](Answers answers) {
    records::ReportRecord report;
    int64_t moved = 0;
    for (size_t r = 0; r < answers.size(); ++r) {
      const v1::ReportSparsityResult& result = answers[r].ack.report_sparsity();
      moved += result.bytes_sent();
      if (result.mask_version() == run().mask_version()) continue;
      return Fail(MakeError(v1::ERROR_REASON_STATE_DIVERGED,
                            absl::StrCat("rank ", r, " (", workers_[r], ") reported mask version ",
                                         result.mask_version(), " instead of ", run().mask_version()),
                            {{"rank", absl::StrCat(r)},
                             {"want", absl::StrCat(run().mask_version())},
                             {"got", absl::StrCat(result.mask_version())}}));
    }
    std::vector<v1::ParameterSparsity>& rows = answers[0].rows;
    if (rows.size() != parameters_.size()) {
      return Fail(MakeError(v1::ERROR_REASON_INVARIANT,
                            absl::StrCat("the report of rank 0 (", workers_[0], ") has ", rows.size(),
                                         " parameters, the model ", parameters_.size()),
                            {{"what", "rows"}, {"where", "ReportSparsity"}}));
    }
    for (v1::ParameterSparsity& row : rows) {
      const auto planned = planned_.find(row.name());
      row.set_planned(planned == planned_.end() ? -1 : planned->second);
    }
    if (ChecksOn()) {
      const absl::Status effective = CheckPlanned(rows);
      if (!effective.ok()) return Fail(effective);
    }
    *report.mutable_summary() = SumRows(rows, run().mask_version());
    for (v1::ParameterSparsity& row : rows) *report.add_parameters() = std::move(row);
    v1::Provenance& provenance = *report.mutable_provenance();
    provenance.set_run(run().name());
    provenance.set_generation(run().generation());
    provenance.set_mode(mode);
    provenance.set_world_size(world_size());
    provenance.set_elapsed_seconds(absl::ToDoubleSeconds(around_.loop.Now() - start));
    provenance.set_bytes_moved(moved);
    provenance.set_path(run().model_path());
    provenance.set_time(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", Wall(), absl::UTCTimeZone()));
    provenance.set_version(ESPALIER_VERSION);
    if (mode == v1::REPORT_MODE_SHARD_COUNTS) report_ = report;
    done(std::move(report));
  };
  // A gather moves the model once.
  CallAll(command, DataDeadline(ModelBytes() * 2), finish, std::move(soft));
}

absl::Status RunDriver::Report(v1::ReportMode mode, std::shared_ptr<ReportSink> sink) {
  const absl::Status status = MustRun("compute a report");
  if (!status.ok()) return status;
  if (mode == v1::REPORT_MODE_UNSPECIFIED) mode = v1::REPORT_MODE_SHARD_COUNTS;
  Demand demand;
  demand.start = [this, mode, sink] {
    if (sink->Closed()) return EndDemand();
    ComputeReport(
        mode,
        [this, sink](const records::ReportRecord& report) {
          WriteReport(report, *sink);
          EndDemand();
        },
        [this, sink](const absl::Status& status) {
          sink->Finish(status);
          EndDemand();
        });
  };
  demand.abort = [sink](const absl::Status& why) { sink->Finish(why); };
  Enqueue(std::move(demand));
  return absl::OkStatus();
}

// --- parameters and masks

absl::Status RunDriver::Gather(const v1::GatherParameter& op, std::shared_ptr<ChunkSink> sink) {
  const absl::Status status = MustRun(op.mask() ? "read a mask" : "read a parameter");
  if (!status.ok()) return status;
  Demand demand;
  demand.start = [this, op, sink] {
    if (sink->Closed()) return EndDemand();
    StartGather(op, sink);
  };
  demand.abort = [sink](const absl::Status& why) { sink->Finish(why); };
  Enqueue(std::move(demand));
  return absl::OkStatus();
}

void RunDriver::StartGather(const v1::GatherParameter& op, std::shared_ptr<ChunkSink> sink) {
  upload_end_.reset();
  gather_end_.reset();
  relay_ = std::make_shared<UploadRelay>(
      run().generation(), run().mask_version(), std::move(sink),
      [this, &loop = around_.loop, alive = std::weak_ptr<bool>(alive_)](const absl::Status& status) {
        loop.Post([this, alive, status] {
          const auto held = alive.lock();
          if (held == nullptr || relay_ == nullptr) return;
          upload_end_ = status;
          EndGather();
        });
      });
  v1::Command command = NewCommand();
  *command.mutable_gather_parameter() = op;
  const auto ended = [this](const absl::Status& status) {
    gather_end_ = status;
    EndGather();
  };
  CallAll(
      command, DataDeadline(ModelBytes()) + 2 * around_.timeouts.read_stall, [ended](const Answers&) { ended({}); },
      ended);
  if (call_ == nullptr || relay_ == nullptr) return;
  upload_ = {workers_[0], call_->command_id(0)};
  around_.expect_upload(upload_.first, upload_.second, relay_);
  WatchReader(-1);
}

// Neither a client that stops reading nor an upload that never comes may hold up the run.
void RunDriver::WatchReader(int64_t passed) {
  read_timer_ = around_.loop.After(around_.timeouts.read_stall, [this, passed] {
    read_timer_ = 0;
    if (relay_ == nullptr) return;
    const int64_t now = relay_->passed();
    const bool working = now == 0 && !gather_end_;  // the ranks are still at it
    if (now != passed || working) return WatchReader(now);
    const std::string limit = absl::FormatDuration(around_.timeouts.read_stall);
    const absl::Status late = MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                                        absl::StrCat("nothing of the parameter was taken or came for ", limit),
                                        {{"limit", limit}, {"value", "reading"}});
    relay_->Finish(late);
    if (!gather_end_) return;  // the worker is told that nobody waits, and answers
    upload_end_ = late;
    EndGather();
  });
}

void RunDriver::EndGather() {
  // An upload that never came, or broke, is over when its command is.
  const bool failed = gather_end_ && !gather_end_->ok();
  if (!gather_end_ || (!upload_end_ && !failed)) return;
  const std::shared_ptr<UploadRelay> relay = std::exchange(relay_, nullptr);
  around_.expect_upload(upload_.first, upload_.second, nullptr);
  around_.loop.Cancel(std::exchange(read_timer_, 0));
  relay->Finish(failed ? *gather_end_ : *upload_end_);
  EndDemand();
}

// --- saves

absl::StatusOr<v1::Operation> RunDriver::Save(const v1::SaveCheckpointRequest& request, const ExtraRows& extra) {
  absl::Status status = MustRun("save it");
  if (!status.ok()) return status;
  v1::Run with_room = run();
  status = MakeRoom(with_room);
  if (!status.ok()) return status;
  const std::string id = absl::StrCat("s", NewUuid().substr(24));
  v1::Operation operation;
  operation.set_name(OperationName(run().name(), id));
  operation.set_state(v1::Operation::STATE_RUNNING);
  operation.set_path(request.path());
  *operation.mutable_create_time() = ToTimestamp(Wall());
  status = Commit(
      {"OperationStarted", absl::StrCat("saving to ", request.path()), {}},
      [&](v1::Run& run) {
        *run.mutable_operations() = with_room.operations();
        *run.add_operations() = operation;
      },
      extra);
  if (!status.ok()) return status;
  SaveInFlight save{.path = request.path(),
                    .token = absl::StrCat(run().name().substr(5), "-", run().generation(), "-", id),
                    .overwrite = request.overwrite(),
                    .max_shard_bytes = request.max_shard_bytes(),
                    .operation = operation.name()};
  Demand demand;
  demand.operation = operation.name();
  demand.start = [this, save] { StartSave(save); };
  demand.abort = [this, name = operation.name()](const absl::Status& why) { EndOperation(name, why, 0); };
  demands_.push_back(std::move(demand));
  // The answer goes out before anything else happens to the operation.
  around_.loop.Post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired() && idle_) Next();
  });
  return operation;
}

absl::StatusOr<v1::Operation> RunDriver::CancelOperation(const std::string& name, const ExtraRows& extra) {
  const absl::Status cancelled = MakeError(v1::ERROR_REASON_CANCELLED, "the save was cancelled", {{"operation", name}});
  const auto waiting =
      std::find_if(demands_.begin(), demands_.end(), [&](const Demand& d) { return d.operation == name; });
  v1::Run copy = run();
  v1::Operation* operation = FindOperation(copy, name);
  if (operation == nullptr) {
    return MakeError(v1::ERROR_REASON_OPERATION_NOT_FOUND, absl::StrCat("there is no operation ", name),
                     {{"operation", name}});
  }
  const bool publishing = save_ && save_->operation == name && save_->publishing;
  if (operation->state() != v1::Operation::STATE_RUNNING || publishing) return *operation;
  if (waiting != demands_.end()) demands_.erase(waiting);
  if (save_ && save_->operation == name) save_->cancelled = true;
  EndOperation(name, cancelled, 0, extra);
  copy = run();
  return *FindOperation(copy, name);
}

void RunDriver::EndOperation(const std::string& name, const absl::Status& status, int64_t bytes,
                             const ExtraRows& extra) {
  v1::Run copy = run();
  const v1::Operation* present = FindOperation(copy, name);
  if (present == nullptr || present->state() != v1::Operation::STATE_RUNNING) {
    // Cancelled before; what it had begun is over now.
    if (extra) around_.store.ForceCommit(entry_, {"OperationProgress", "the cancelled save is removed", {}}, {}, extra);
    return;
  }
  const bool cancelled = ReasonOf(status) == v1::ERROR_REASON_CANCELLED;
  around_.store.ForceCommit(
      entry_, {"OperationEnded", status.ok() ? "the checkpoint is complete" : std::string(status.message()), {}},
      [&](v1::Run& run) {
        v1::Operation& operation = *FindOperation(run, name);
        operation.set_state(status.ok() ? v1::Operation::STATE_SUCCEEDED
                            : cancelled ? v1::Operation::STATE_CANCELLED
                                        : v1::Operation::STATE_FAILED);
        if (!status.ok()) *operation.mutable_error() = ToProto(status);
        if (status.ok()) {
          operation.set_bytes_done(bytes);
          operation.set_bytes_total(bytes);
          SetCondition(run, kCheckpointDurable, v1::Condition::STATUS_TRUE, "Published", operation.path(), Wall());
        }
        *operation.mutable_end_time() = ToTimestamp(Wall());
      },
      extra);
}

void RunDriver::StartSave(SaveInFlight save) {
  save_ = std::move(save);
  if (report_ && report_->summary().mask_version() == run().mask_version()) return SaveShards();
  ComputeReport(
      v1::REPORT_MODE_SHARD_COUNTS, [this](const records::ReportRecord&) { SaveShards(); },
      [this](const absl::Status& status) { EndSave(status, 0); });
}

void RunDriver::SaveShards() {
  records::SaveRecord record;
  record.set_path(save_->path);
  record.set_token(save_->token);
  record.set_generation(run().generation());
  entry_.saves[save_->token] = record;
  const bool committed = CommitOrFail(
      {save_->operation.empty() ? "StateChanged" : "OperationProgress", "all ranks write their ranges", {}}, {},
      [&](const v1::Run& run) { return std::vector{RunStore::Row("save", run, record, record.token())}; });
  if (!committed) return;
  v1::Command command = NewCommand();
  v1::SaveShards& op = *command.mutable_save_shards();
  op.set_path(save_->path);
  op.set_overwrite(save_->overwrite);
  op.set_max_shard_bytes(save_->max_shard_bytes);
  op.set_token(save_->token);
  CallAll(
      command, DataDeadline(ModelBytes() * 2),
      [this](Answers answers) {
        std::vector<v1::RangeChecksum> checksums;
        int64_t bytes = 0;
        for (const RankAnswer& answer : answers) {
          const v1::SaveShardsResult& result = answer.ack.save_shards();
          bytes += result.bytes_written();
          checksums.insert(checksums.end(), result.checksums().begin(), result.checksums().end());
        }
        if (save_->cancelled) {
          DiscardSave([this] { EndSave(absl::OkStatus(), 0); });
          return;
        }
        records::SaveRecord record = entry_.saves[save_->token];
        record.set_prepared(true);
        entry_.saves[save_->token] = record;
        const bool committed = CommitOrFail(
            {save_->operation.empty() ? "StateChanged" : "OperationProgress", "all ranks are prepared; publishing", {}},
            [&](v1::Run& run) {
              if (v1::Operation* operation = FindOperation(run, save_->operation)) {
                operation->set_bytes_done(bytes);
                operation->set_bytes_total(bytes);
              }
            },
            [&](const v1::Run& run) { return std::vector{RunStore::Row("save", run, record, record.token())}; });
        if (committed) Publish(std::move(checksums));
      },
      save_->operation.empty() ? std::function<void(const absl::Status&)>()
                               : [this](const absl::Status& status) { EndSave(status, 0); });
}

void RunDriver::Publish(std::vector<v1::RangeChecksum> checksums) {
  save_->publishing = true;
  std::vector<std::optional<v1::Command>> commands(workers_.size());
  commands[0] = NewCommand();
  v1::PublishCheckpoint& op = *commands[0]->mutable_publish_checkpoint();
  op.set_path(save_->path);
  op.set_overwrite(save_->overwrite);
  op.set_token(save_->token);
  for (v1::RangeChecksum& checksum : checksums) *op.add_checksums() = std::move(checksum);
  op.set_recipe(entry_.spec.recipe());
  op.set_recipe_name(entry_.spec.recipe_name());
  *op.mutable_plan() = entry_.plan;
  *op.mutable_report() = report_->parameters();
  *op.mutable_summary() = report_->summary();
  *op.mutable_provenance() = report_->provenance();
  op.set_mask_digest(mask_digest_);
  op.set_max_shard_bytes(save_->max_shard_bytes);
  Call(
      commands, DataDeadline(0),
      [this](const Answers& answers) { EndSave(absl::OkStatus(), answers[0].ack.publish_checkpoint().bytes_total()); },
      save_->operation.empty() ? std::function<void(const absl::Status&)>()
                               : [this](const absl::Status& status) { EndSave(status, 0); });
}

void RunDriver::DiscardSave(std::function<void()> then) {
  v1::Command command = NewCommand();
  command.mutable_discard_checkpoint()->set_path(save_->path);
  command.mutable_discard_checkpoint()->set_token(save_->token);
  CallAll(command, around_.timeouts.command, [then](const Answers&) { then(); });
}

// A save has come to its end while the group is whole.
void RunDriver::EndSave(const absl::Status& status, int64_t bytes) {
  const SaveInFlight save = *std::exchange(save_, std::nullopt);
  entry_.saves.erase(save.token);
  const ExtraRows forget = [&](const v1::Run& run) {
    return std::vector<JournalRecord>{{"save", run.name(), save.token, "", /*erase=*/true}};
  };
  if (!save.operation.empty()) {
    EndOperation(save.operation, status, bytes, forget);
    return EndDemand();
  }
  const bool committed = CommitOrFail(
      {"StateChanged", absl::StrCat("the checkpoint stands at ", save.path), {}},
      [&](v1::Run& run) {
        MoveTo(run, v1::Run::STATE_SUCCEEDED, "", Wall());
        SetCondition(run, kCheckpointDurable, v1::Condition::STATUS_TRUE, "Published", save.path, Wall());
      },
      forget);
  if (committed) LetGo("");
}

}  // namespace espalier
