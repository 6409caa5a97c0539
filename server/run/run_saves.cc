// Saves of a RUNNING run, and the one at its end.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/names.h"
#include "proto/support/uuid.h"
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
                    .format = request.format(),
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
  op.set_format(save_->format);
  CallAll(
      command, DataDeadline(ModelBytes() * 2),
      [this](Answers answers) {
        std::vector<v1::RangeChecksum> checksums;
        int64_t bytes = 0;
        for (const RankAnswer& answer : answers) {
          bytes += answer.ack.save_shards().bytes_written();
          checksums.insert(checksums.end(), answer.checksums.begin(), answer.checksums.end());
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
      OnSaveRefused());
}

// Whether somebody asked for the save and can ask again; else a save that cannot be written fails the run.
bool RunDriver::Asked() const {
  return (save_ && !save_->operation.empty()) || (entry_.spec.hold() && !finishing_);
}

std::function<void(const absl::Status&)> RunDriver::OnSaveRefused() {
  if (!Asked()) return {};
  return [this](const absl::Status& status) { EndSave(status, 0); };
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
      OnSaveRefused());
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
  if (!status.ok()) return HoldAgain(status, forget);
  const bool committed = CommitOrFail(
      {"StateChanged", absl::StrCat("the checkpoint stands at ", save.path), {}},
      [&](v1::Run& run) {
        MoveTo(run, v1::Run::STATE_SUCCEEDED, "", Wall());
        SetCondition(run, kCheckpointDurable, v1::Condition::STATUS_TRUE, "Published", save.path, Wall());
      },
      forget);
  if (committed) LetGo("");
}

// The output of a held run cannot be written: its workers still hold everything, so that it can be finished later, or
// saved elsewhere.
void RunDriver::HoldAgain(const absl::Status& status, const ExtraRows& extra) {
  if (!Asked()) return Fail(status);
  const bool committed = CommitOrFail(
      {"StateChanged", absl::StrCat("not finished: ", status.message()), {}},
      [&](v1::Run& run) {
        MoveTo(run, v1::Run::STATE_RUNNING,
               absl::StrCat("held again, as it could not be finished; `espalier finish ", run.name(), "` tries again"),
               Wall());
        run.set_hold(true);
        *run.mutable_error() = ToProto(status);
      },
      extra);
  if (committed) Next();
}

}  // namespace espalier
