#include "server/metrics/coordinator_metrics.h"

#include <algorithm>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"
#include "server/run/run_states.h"

namespace espalier {
namespace {

using google::protobuf::util::TimeUtil;

constexpr const char* kPhases[] = {"load",   "count",  "select", "vote", "swap",
                                   "verify", "report", "gather", "save", "publish"};

std::string WorkerState(v1::Worker::State state) {
  return std::string(absl::StripPrefix(v1::Worker::State_Name(state), "STATE_"));
}

// Phases that are a command of their own; UpdateMasks tells its own four.
absl::string_view PhaseOf(absl::string_view operation) {
  static constexpr std::pair<absl::string_view, absl::string_view> kPairs[] = {
      {"LoadModel", "load"},         {"CountUpdate", "count"}, {"ReportSparsity", "report"},
      {"GatherParameter", "gather"}, {"SaveShards", "save"},   {"PublishCheckpoint", "publish"}};
  for (const auto& [name, phase] : kPairs) {
    if (operation == name) return phase;
  }
  return "";
}

double SecondsOf(absl::Time time) {
  return static_cast<double>(absl::ToUnixMicros(time)) / 1e6;
}

bool Held(const v1::Run& run) {
  return run.state() == v1::Run::STATE_RUNNING && absl::StartsWith(run.state_reason(), "held");
}

template <typename Enum, typename Name>
void CreateAll(Metrics& metrics, const MetricSpec& spec, int count, const Name& name) {
  for (int i = 1; i < count; ++i) metrics.Create(spec, {name(static_cast<Enum>(i))});
}

}  // namespace

CoordinatorMetrics::CoordinatorMetrics(Metrics& metrics, const Clock& clock) : metrics_(metrics), clock_(clock) {
  CreateAll<v1::Run::State>(metrics, metric::kRuns, v1::Run::State_ARRAYSIZE, StateName);
  CreateAll<v1::Worker::State>(metrics, metric::kWorkers, v1::Worker::State_ARRAYSIZE, WorkerState);
  for (const auto state : {v1::Run::STATE_SUCCEEDED, v1::Run::STATE_FAILED, v1::Run::STATE_CANCELLED}) {
    metrics.Create(metric::kRunsEnded, {StateName(state)});
  }
  for (const auto reason : {v1::ERROR_REASON_MASK_NOT_EFFECTIVE, v1::ERROR_REASON_STATE_DIVERGED}) {
    metrics.Create(metric::kVerificationFailures, {ReasonName(MakeError(reason, ""))});
  }
  for (const char* outcome : {"committed", "failed"}) metrics.Create(metric::kMaskUpdates, {outcome});
  for (const char* outcome : {"published", "failed"}) metrics.Create(metric::kCheckpoints, {outcome});
  for (const char* phase : kPhases) metrics.Create(metric::kPhaseSeconds, {phase});
}

// --- runs

void CoordinatorMetrics::CountState(v1::Run::State state, int by) {
  runs_[state] += by;
  metrics_.Set(metric::kRuns, runs_[state], {StateName(state)});
}

void CoordinatorMetrics::OnRun(const v1::Run& run) {
  CountState(run.state(), 1);
}

void CoordinatorMetrics::OnRunForgotten(const v1::Run& run) {
  CountState(run.state(), -1);
}

void CoordinatorMetrics::OnRunChanged(const v1::Run& before, const v1::Run& after, absl::string_view event) {
  if (before.state() != after.state()) {
    CountState(before.state(), -1);
    CountState(after.state(), 1);
    if (IsTerminal(after.state())) OnEnded(after);
  }
  if (event == "UpdateCommitted") metrics_.Count(metric::kMaskUpdates, {"committed"});
  if (IsTerminal(after.state())) {
    Hide(after.name());
  } else if (after.state() != v1::Run::STATE_QUEUED) {
    Show(after);
  }
}

void CoordinatorMetrics::OnEnded(const v1::Run& run) {
  metrics_.Count(metric::kRunsEnded, {StateName(run.state())});
  if (run.state() != v1::Run::STATE_FAILED) return;
  const absl::Status error = FromProto(run.error());
  metrics_.Count(metric::kRunFailures, {ReasonName(error)});
  const v1::ErrorReason reason = ReasonOf(error);
  if (reason == v1::ERROR_REASON_MASK_NOT_EFFECTIVE || reason == v1::ERROR_REASON_STATE_DIVERGED) {
    metrics_.Count(metric::kVerificationFailures, {ReasonName(error)});
  }
}

void CoordinatorMetrics::Show(const v1::Run& run) {
  const std::string& name = run.name();
  if (shown_.count(name) == 0) {
    if (shown_.size() >= kMaxRuns) return;
    shown_.insert(name);
  }
  metrics_.Set(metric::kRunUpdates, run.updates_done(), {name, "committed"});
  metrics_.Set(metric::kRunUpdates, run.updates_total(), {name, "planned"});
  if (run.has_sparsity()) {
    metrics_.Set(metric::kRunSparsity, run.sparsity().sparsity_percent() / 100, {name, "measured"});
    metrics_.Set(metric::kRunZeros, static_cast<double>(run.sparsity().sparse()), {name});
    metrics_.Set(metric::kRunMasked, static_cast<double>(run.sparsity().masked()), {name});
  }
  if (Held(run)) {
    metrics_.Remove(metric::kRunProgressTimestamp, {name});
  } else {
    metrics_.Set(metric::kRunProgressTimestamp, SecondsOf(clock_.Wall()), {name});
  }
}

void CoordinatorMetrics::Hide(const std::string& run) {
  if (shown_.erase(run) == 0) return;
  for (const char* kind : {"wanted", "measured"}) metrics_.Remove(metric::kRunSparsity, {run, kind});
  for (const char* kind : {"committed", "planned"}) metrics_.Remove(metric::kRunUpdates, {run, kind});
  for (const MetricSpec* spec : {&metric::kRunZeros, &metric::kRunMasked, &metric::kRunProgressTimestamp}) {
    metrics_.Remove(*spec, {run});
  }
}

void CoordinatorMetrics::OnMasksCommitted(const v1::Run& run, int64_t wanted, int64_t elements) {
  if (shown_.count(run.name()) == 0 || elements == 0) return;
  metrics_.Set(metric::kRunSparsity, static_cast<double>(wanted) / static_cast<double>(elements),
               {run.name(), "wanted"});
}

// --- commands

void CoordinatorMetrics::ObservePhase(absl::string_view phase, double seconds) {
  metrics_.Observe(metric::kPhaseSeconds, seconds, {std::string(phase)});
}

void CoordinatorMetrics::OnCommand(absl::string_view operation, absl::Duration elapsed,
                                   absl::Span<const v1::Ack* const> acks, const absl::Status& status) {
  const std::string name(operation);
  const bool expired = absl::IsDeadlineExceeded(status);
  metrics_.Count(metric::kCommands, {name, status.ok() ? "acked" : expired ? "expired" : "failed"});
  metrics_.Observe(metric::kCommandSeconds, absl::ToDoubleSeconds(elapsed), {name});
  if (!status.ok()) {
    if (operation == "UpdateMasks") metrics_.Count(metric::kMaskUpdates, {"failed"});
    if (operation == "SaveShards" || operation == "PublishCheckpoint") metrics_.Count(metric::kCheckpoints, {"failed"});
    return;
  }
  if (operation == "PublishCheckpoint") metrics_.Count(metric::kCheckpoints, {"published"});
  if (const absl::string_view phase = PhaseOf(operation); !phase.empty()) {
    ObservePhase(phase, absl::ToDoubleSeconds(elapsed));
  }
  const auto slowest = [&](double (v1::UpdateMasksResult::*seconds)() const) {
    double most = 0;
    for (const v1::Ack* ack : acks) most = std::max(most, (ack->update_masks().*seconds)());
    return most;
  };
  if (operation == "UpdateMasks") {
    ObservePhase("select", slowest(&v1::UpdateMasksResult::select_seconds));
    ObservePhase("vote", slowest(&v1::UpdateMasksResult::vote_seconds));
    ObservePhase("swap", slowest(&v1::UpdateMasksResult::swap_seconds));
    ObservePhase("verify", slowest(&v1::UpdateMasksResult::verify_seconds));
  }
  for (const v1::Ack* ack : acks) {
    metrics_.Count(metric::kCollectiveBytes, {},
                   static_cast<double>(ack->update_masks().bytes_sent() + ack->report_sparsity().bytes_sent()));
    metrics_.Count(metric::kCheckpointBytes, {}, static_cast<double>(ack->save_shards().bytes_written()));
  }
}

// --- workers

void CoordinatorMetrics::OnWorkers(const std::vector<v1::Worker>& workers) {
  std::map<v1::Worker::State, int> states;
  std::set<std::string> heard;
  std::map<std::pair<std::string, std::string>, int64_t> refused;
  const absl::Time now = clock_.Wall();
  for (const v1::Worker& worker : workers) {
    ++states[worker.state()];
    int64_t& count = refused[{worker.name(), worker.incarnation()}];
    count = worker.refused_messages();
    const auto before = refused_.find({worker.name(), worker.incarnation()});
    const int64_t more = count - (before == refused_.end() ? 0 : before->second);
    if (more > 0) metrics_.Count(metric::kMessagesRefused, {}, static_cast<double>(more));
    if (worker.state() == v1::Worker::STATE_LOST) continue;
    heard.insert(worker.name());
    const absl::Duration silent = absl::Nanoseconds(TimeUtil::DurationToNanoseconds(worker.since_heartbeat()));
    metrics_.Set(metric::kWorkerHeartbeatTimestamp, SecondsOf(now - silent), {worker.name()});
  }
  for (const std::string& worker : workers_) {
    if (heard.count(worker) == 0) metrics_.Remove(metric::kWorkerHeartbeatTimestamp, {worker});
  }
  workers_ = std::move(heard);
  refused_ = std::move(refused);
  for (int i = 1; i < v1::Worker::State_ARRAYSIZE; ++i) {
    const auto state = static_cast<v1::Worker::State>(i);
    metrics_.Set(metric::kWorkers, states[state], {WorkerState(state)});
  }
}

void CoordinatorMetrics::OnWorkerLost() {
  metrics_.Count(metric::kWorkersLost);
}

}  // namespace espalier
