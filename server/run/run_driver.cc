#include "server/run/run_driver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/checks.h"
#include "proto/support/digest_sum.h"
#include "proto/support/errors.h"
#include "proto/support/names.h"
#include "server/recipe/planner.h"
#include "server/run/run_states.h"

namespace espalier {
namespace {

constexpr int64_t kGeneration = 1;  // the group is formed once

JournalRecord UpdateRow(const v1::Run& run, const records::UpdateRecord& record) {
  return RunStore::Row("update", run, record, absl::StrFormat("%019d", record.version()));
}

void MustHaveAll(v1::Run& run, absl::Time now) {
  SetCondition(run, kWorkersReady, v1::Condition::STATUS_TRUE, "Joined", "all ranks are in the group", now);
}

}  // namespace

RunDriver::RunDriver(RunSurroundings around, RunEntry& entry) : around_(std::move(around)), entry_(entry) {
  for (const v1::Parameter& parameter : entry_.model.parameters()) parameters_[parameter.name()] = &parameter;
}

RunDriver::~RunDriver() {
  around_.loop.Cancel(hold_timer_);
  around_.loop.Cancel(read_timer_);
  around_.loop.Cancel(blame_timer_);
  around_.loop.Cancel(leave_timer_);
}

absl::Status RunDriver::Commit(const Happening& what, const std::function<void(v1::Run&)>& change,
                               const ExtraRows& extra) {
  return around_.store.Commit(entry_, what, change, extra);
}

bool RunDriver::CommitOrFail(const Happening& what, const std::function<void(v1::Run&)>& change,
                             const ExtraRows& extra) {
  const absl::Status status = Commit(what, change, extra);
  if (!status.ok()) Fail(status);
  return status.ok();
}

absl::Duration RunDriver::DataDeadline(int64_t bytes) const {
  const RunTimeouts& timeouts = around_.timeouts;
  return timeouts.command + absl::Seconds(bytes / timeouts.bytes_per_second);
}

void RunDriver::Start(std::vector<std::string> workers) {
  workers_ = std::move(workers);
  gone_.assign(workers_.size(), false);
  const bool committed =
      CommitOrFail({"WorkersClaimed", absl::StrCat("claimed ", workers_.size(), " workers"), {}}, [this](v1::Run& run) {
        MoveTo(run, v1::Run::STATE_STARTING, "forming the group", Wall());
        run.set_generation(kGeneration);
        for (const std::string& worker : workers_) run.add_workers(WorkerName(worker));
      });
  if (!committed) return;
  if (world_size() == 1) {
    JoinGroup("");
  } else {
    OpenRendezvous();
  }
}

void RunDriver::OpenRendezvous() {
  std::vector<std::optional<v1::Command>> commands(workers_.size());
  commands[0] = NewCommand();
  commands[0]->mutable_open_rendezvous();
  Call(commands, around_.timeouts.command,
       [this](Answers answers) { JoinGroup(answers[0].ack.open_rendezvous().address()); });
}

void RunDriver::JoinGroup(const std::string& store_address) {
  std::vector<std::optional<v1::Command>> commands(workers_.size());
  for (size_t r = 0; r < commands.size(); ++r) {
    commands[r] = NewCommand();
    v1::JoinGroup& op = *commands[r]->mutable_join_group();
    op.set_rank(static_cast<int>(r));
    op.set_world_size(world_size());
    op.set_store_address(store_address);
  }
  Call(commands, around_.timeouts.command, [this](const Answers&) {
    const bool committed = CommitOrFail({"ConditionChanged", "the group is formed", {}}, [this](v1::Run& run) {
      run.set_state_reason("loading the model");
      MustHaveAll(run, Wall());
    });
    if (committed) LoadModel();
  });
}

void RunDriver::LoadModel() {
  v1::Command command = NewCommand();
  command.mutable_load_model()->set_path(entry_.spec.model_path());
  command.mutable_load_model()->set_ignore_stored_masks(entry_.spec.ignore_stored_masks());
  CallAll(command, DataDeadline(ModelBytes()), [this](const Answers& answers) {
    for (const RankAnswer& answer : answers) {
      mask_digest_ = AddDigests(mask_digest_, answer.ack.load_model().mask_digest());
    }
    const bool committed = CommitOrFail({"StateChanged", "the model is loaded", {}},
                                        [this](v1::Run& run) { MoveTo(run, v1::Run::STATE_RUNNING, "", Wall()); });
    if (committed) Next();
  });
}

void RunDriver::Next() {
  idle_ = false;
  if (!demands_.empty()) {
    serving_ = std::move(demands_.front());
    demands_.pop_front();
    serving_->start();
  } else if (next_update_ < entry_.plan.updates_size()) {
    CountUpdate();
  } else if (!reported_) {
    MakeFinalReport();
  } else if (run().hold() && !finishing_) {
    Hold();
  } else if (run().output_path().empty()) {
    Succeed();
  } else {
    const bool committed = CommitOrFail({"StateChanged", absl::StrCat("saving to ", run().output_path()), {}},
                                        [this](v1::Run& run) { MoveTo(run, v1::Run::STATE_SAVING, "", Wall()); });
    if (!committed) return;
    StartSave({.path = run().output_path(),
               .token = absl::StrCat(run().name().substr(5), "-", run().generation(), "-output"),
               .overwrite = entry_.spec.overwrite(),
               .max_shard_bytes = entry_.spec.max_shard_bytes(),
               .format = entry_.spec.output_format()});
  }
}

void RunDriver::CountUpdate() {
  const v1::UpdateSpec spec = SpecOfUpdate(entry_.plan, next_update_);
  v1::Command command = NewCommand();
  *command.mutable_count_update()->mutable_spec() = spec;
  CallAll(command, DataDeadline(ModelBytes()), [this, spec](const Answers& answers) { PushUpdate(spec, answers); });
}

void RunDriver::PushUpdate(const v1::UpdateSpec& counting, const Answers& answers) {
  std::vector<int64_t> numel;
  for (const std::string& name : counting.parameters()) {
    int64_t n = 1;
    for (const int64_t d : parameters_.at(name)->shape()) n *= d;
    numel.push_back(n);
  }
  std::vector<RankCounts> counts;
  for (const RankAnswer& answer : answers) counts.push_back(answer.counts);
  const absl::StatusOr<Intent> intent = DecidePruned(counting, numel, counts);
  if (!intent.ok()) return Fail(intent.status());
  v1::UpdateSpec pushed = counting;
  pushed.mutable_targets()->Assign(intent->targets.begin(), intent->targets.end());
  records::UpdateRecord record;
  record.set_state(records::UpdateRecord::STATE_INTENDED);
  record.set_version(pushed.version());
  record.set_update(next_update_);
  *record.mutable_targets() = pushed.targets();
  record.set_at_least(intent->at_least);
  const bool committed =
      CommitOrFail({"UpdateIntended",
                    absl::StrCat("mask version ", pushed.version(), ": ", pushed.parameters_size(), " parameters"),
                    {}},
                   {}, [record](const v1::Run& run) { return std::vector{UpdateRow(run, record)}; });
  if (!committed) return;
  update_open_ = true;
  report_.reset();
  v1::Command command = NewCommand();
  *command.mutable_update_masks()->mutable_spec() = pushed;
  CallAll(command, DataDeadline(ModelBytes()),
          [this, pushed, intent = *intent](const Answers& answers) { CommitUpdate(pushed, intent, answers); });
}

void RunDriver::CommitUpdate(const v1::UpdateSpec& pushed, const Intent& intent, const Answers& answers) {
  std::vector<RankUpdate> ranks;
  for (const RankAnswer& answer : answers) ranks.push_back({answer.counts, answer.ack.update_masks()});
  const absl::StatusOr<Committed> checked = CheckUpdate(pushed, intent, ranks, ChecksOn());
  if (!checked.ok()) return Fail(checked.status());
  records::UpdateRecord record;
  record.set_state(records::UpdateRecord::STATE_COMMITTED);
  record.set_version(pushed.version());
  record.set_update(next_update_);
  *record.mutable_targets() = pushed.targets();
  record.set_at_least(intent.at_least);
  record.mutable_masked()->Assign(checked->masked.begin(), checked->masked.end());
  record.set_mask_digest(checked->mask_digest);
  record.set_selection_hash(checked->selection_hash);
  int64_t masked = 0;
  for (const int64_t count : checked->masked) masked += count;
  const bool committed = CommitOrFail(
      {"UpdateCommitted", absl::StrCat("mask version ", pushed.version(), ": ", masked, " elements masked"), {}},
      [&](v1::Run& run) {
        run.set_mask_version(pushed.version());
        run.set_updates_done(next_update_ + 1);
        const std::string message = absl::StrCat("mask version ", pushed.version());
        SetCondition(run, kMasksConsistent, v1::Condition::STATUS_TRUE, "Committed", message, Wall());
        SetCondition(run, kMasksEffective, v1::Condition::STATUS_TRUE, "Verified", message, Wall());
      },
      [record](const v1::Run& run) { return std::vector{UpdateRow(run, record)}; });
  if (!committed) return;
  update_open_ = false;
  for (int i = 0; i < pushed.parameters_size(); ++i) {
    planned_[pushed.parameters(i)] = checked->masked[static_cast<size_t>(i)];
  }
  int64_t wanted = 0;
  for (const auto& [name, count] : planned_) wanted += count;
  around_.observer.OnMasksCommitted(run(), wanted, entry_.plan.model_elements());
  mask_digest_ = checked->mask_digest;
  ++next_update_;
  Next();
}

void RunDriver::MakeFinalReport() {
  ComputeReport(v1::REPORT_MODE_SHARD_COUNTS,
                [this](const records::ReportRecord& report) {
                  const bool committed = CommitOrFail(
                      {"ReportMade",
                       absl::StrFormat("%d of %d elements are zero (%.2f %%)", report.summary().sparse(),
                                       report.summary().total(), report.summary().sparsity_percent()),
                       {}},
                      [&](v1::Run& run) { *run.mutable_sparsity() = report.summary(); },
                      [&](const v1::Run& run) { return std::vector{RunStore::Row("report", run, report)}; });
                  if (!committed) return;
                  entry_.report = report;
                  reported_ = true;
                  Next();
                },
                {});
}

void RunDriver::Hold() {
  idle_ = true;
  if (hold_timer_ != 0) return;
  absl::Duration limit = around_.timeouts.hold;
  if (entry_.spec.has_hold_timeout()) {
    limit = absl::Nanoseconds(google::protobuf::util::TimeUtil::DurationToNanoseconds(entry_.spec.hold_timeout()));
  }
  hold_timer_ = around_.loop.After(limit, [this] {
    // Left to fire again only through FinishRun: the hold ends once.
    finishing_ = true;
    if (idle_) Next();
  });
  CommitOrFail({"StateChanged", "all stages are done, the run is held", {}}, [](v1::Run& run) {
    run.set_state_reason(absl::StrCat("held; `espalier finish ", run.name(), "` ends it"));
  });
}

void RunDriver::Succeed() {
  const bool committed = CommitOrFail({"StateChanged", "the run succeeded", {}},
                                      [this](v1::Run& run) { MoveTo(run, v1::Run::STATE_SUCCEEDED, "", Wall()); });
  if (committed) LetGo("");
}

absl::Status RunDriver::Finish(const ExtraRows& extra) {
  if (run().state() != v1::Run::STATE_RUNNING || !run().hold()) {
    return IllegalFromState(run(), "finish it", run().hold() ? "it can be finished while RUNNING" : "it is not held");
  }
  const absl::Status status = Commit(
      {"StateChanged", "the hold is lifted", {}},
      [](v1::Run& run) {
        run.set_hold(false);
        run.clear_error();
        run.set_state_reason("finishing");
      },
      extra);
  if (!status.ok()) return status;
  if (idle_) {
    idle_ = false;
    around_.loop.Post([this, alive = std::weak_ptr<bool>(alive_)] {
      if (!alive.expired() && run().state() == v1::Run::STATE_RUNNING) Next();
    });
  }
  return absl::OkStatus();
}

absl::Status RunDriver::Cancel(const std::string& reason, const ExtraRows& extra) {
  if (save_ && save_->operation.empty() && save_->publishing) {
    return IllegalFromState(run(), "cancel it", "its checkpoint is being published");
  }
  if (letting_go_ || IsTerminal(run().state()) || run().state() == v1::Run::STATE_CANCELLING) {
    return IllegalFromState(run(), "cancel it", "it is ending already");
  }
  const absl::Status error = MakeError(v1::ERROR_REASON_CANCELLED,
                                       absl::StrCat(run().name(), " was cancelled", reason.empty() ? "" : ": ", reason),
                                       {{"run", run().name()}});
  const absl::Status status = Commit(
      {"StateChanged", std::string(error.message()), {}},
      [&](v1::Run& run) {
        MoveTo(run, v1::Run::STATE_CANCELLING, "letting the workers go", Wall());
        *run.mutable_error() = ToProto(error);
      },
      extra);
  if (!status.ok()) return status;
  StopWork(error);
  LetGo(std::string(error.message()));
  return absl::OkStatus();
}

}  // namespace espalier
