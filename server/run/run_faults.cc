// What becomes of the run when a command to the group fails, and how its workers are let go.

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/names.h"
#include "server/run/run_driver.h"
#include "server/run/run_states.h"

namespace espalier {
namespace {

// Says only that another rank is missing; that rank is the one to name.
bool IsSymptom(const absl::Status& status) {
  switch (ReasonOf(status)) {
    case v1::ERROR_REASON_COLLECTIVE_TIMEOUT:
    case v1::ERROR_REASON_WORKER_LOST:
    case v1::ERROR_REASON_GENERATION_STALE:
    case v1::ERROR_REASON_UNREACHABLE:
    case v1::ERROR_REASON_CANCELLED:
    case v1::ERROR_REASON_UNSPECIFIED:
      return true;
    default:
      return false;
  }
}

// After it ranks may differ, or no longer meet.
bool BreaksGroup(const absl::Status& status) {
  switch (ReasonOf(status)) {
    case v1::ERROR_REASON_COLLECTIVE_TIMEOUT:
    case v1::ERROR_REASON_WORKER_LOST:
    case v1::ERROR_REASON_GENERATION_STALE:
    case v1::ERROR_REASON_STATE_DIVERGED:
    case v1::ERROR_REASON_MASK_NOT_EFFECTIVE:
      return true;
    default:
      return false;
  }
}

// The lower, the closer to the cause: what a rank found by itself, what the ranks found together, what follows from
// another's failure.
int Distance(const absl::Status& status) {
  if (IsSymptom(status)) return 3;
  if (ReasonOf(status) == v1::ERROR_REASON_INVARIANT) return 2;
  if (ReasonOf(status) == v1::ERROR_REASON_STATE_DIVERGED) return 1;
  return 0;
}

}  // namespace

void RunDriver::OnRankError(int rank, const absl::Status& status) {
  LogWarn("rank_error", {{"run", run().name()},
                         {"rank", absl::StrCat(rank)},
                         {"worker", workers_[static_cast<size_t>(rank)]},
                         {"error", std::string(status.message())}});
  errors_.emplace_back(rank, status);
  if (IsSymptom(status)) {
    for (size_t r = 0; r < workers_.size(); ++r) {
      const LeaseVerdict verdict = around_.registry.VerdictOf(workers_[r]);
      if (gone_[r] || verdict.state == v1::Worker::STATE_SUSPECT || verdict.state == v1::Worker::STATE_LOST) {
        return Fail(RankLost(static_cast<int>(r), verdict.reason));
      }
    }
  }
  // A request of a client ends when all ranks have answered; only a symptom may mean that some never will.
  if (call_soft_ && !IsSymptom(status)) return;
  const absl::Duration wait = IsSymptom(status) ? around_.timeouts.blame : around_.timeouts.second_opinion;
  if (blame_timer_ != 0 && IsSymptom(status)) return;
  around_.loop.Cancel(blame_timer_);
  blame_timer_ = around_.loop.After(wait, [this] {
    blame_timer_ = 0;
    Fail(Verdict());
  });
}

void RunDriver::OnEnded(std::vector<std::optional<RankAnswer>> answers) {
  const absl::Status verdict = errors_.empty() ? absl::OkStatus() : Verdict();
  Observe(answers, verdict);
  call_.reset();
  around_.loop.Cancel(std::exchange(blame_timer_, 0));
  if (verdict.ok()) {
    Answers all;
    for (std::optional<RankAnswer>& answer : answers) all.push_back(answer ? *std::move(answer) : RankAnswer());
    const auto done = std::exchange(call_done_, nullptr);
    done(std::move(all));
    return;
  }
  const bool whole =
      std::none_of(errors_.begin(), errors_.end(), [](const auto& error) { return BreaksGroup(error.second); });
  if (!call_soft_ || !whole) return Fail(verdict);
  const auto soft = std::exchange(call_soft_, nullptr);
  soft(verdict);
}

void RunDriver::OnExpired(const std::vector<int>& missing) {
  // Of those that owe an answer the ones that stand at the lowest collective hold up the others.
  std::vector<int64_t> sequence;
  for (const int rank : missing) {
    sequence.push_back(around_.registry.HeartbeatOf(workers_[static_cast<size_t>(rank)]).collective_sequence());
  }
  const int64_t lowest = *std::min_element(sequence.begin(), sequence.end());
  std::vector<std::string> names, ranks;
  for (size_t i = 0; i < missing.size(); ++i) {
    if (sequence[i] != lowest) continue;
    ranks.push_back(absl::StrCat(missing[i]));
    names.push_back(absl::StrCat("rank ", missing[i], " (", workers_[static_cast<size_t>(missing[i])], ")"));
  }
  const std::string operation = call_->operation();
  Fail(MakeError(v1::ERROR_REASON_COLLECTIVE_TIMEOUT,
                 absl::StrCat(operation, " ran out of time waiting for ", JoinLimited(names, ", "),
                              "; see the logs of these workers"),
                 {{"ranks", absl::StrJoin(ranks, ",")}, {"operation", operation}}));
}

absl::Status RunDriver::NameRank(int rank, const absl::Status& status) const {
  // Ranks that agree on a failure all report it, and say whose it is.
  int cause = 0;
  if (!absl::SimpleAtoi(MetadataOf(status, "rank"), &cause) || cause < 0 || cause >= std::ssize(workers_)) cause = rank;
  const std::string& worker = workers_[static_cast<size_t>(cause)];
  const absl::Status known =
      ReasonOf(status) != v1::ERROR_REASON_UNSPECIFIED
          ? status
          : MakeError(v1::ERROR_REASON_INVARIANT, status.message(), {{"what", "unknown error"}, {"where", worker}});
  return Annotate(known, absl::StrCat("rank ", cause, " (", worker, "): "),
                  {{"rank", absl::StrCat(cause)}, {"worker", worker}});
}

absl::Status RunDriver::RankLost(int rank, const std::string& why) const {
  const std::string& worker = workers_[static_cast<size_t>(rank)];
  return MakeError(v1::ERROR_REASON_WORKER_LOST,
                   absl::StrCat("rank ", rank, " (", worker, ") was lost: ", why.empty() ? "it is gone" : why,
                                "; see that worker's log, then submit the run again"),
                   {{"rank", absl::StrCat(rank)}, {"worker", worker}});
}

absl::Status RunDriver::Verdict() const {
  const auto best = std::min_element(errors_.begin(), errors_.end(), [](const auto& a, const auto& b) {
    return std::pair(Distance(a.second), a.first) < std::pair(Distance(b.second), b.first);
  });
  const absl::Status named = NameRank(best->first, best->second);
  const std::vector<int> owing = call_ == nullptr ? std::vector<int>() : call_->Owing();
  if (!IsSymptom(named) || owing.empty()) return named;
  // Everybody is there, and somebody was waited for: of those that still owe an answer the one at the lowest collective.
  const auto sequence = [this](int rank) {
    return around_.registry.HeartbeatOf(workers_[static_cast<size_t>(rank)]).collective_sequence();
  };
  const int late =
      *std::min_element(owing.begin(), owing.end(), [&](int a, int b) { return sequence(a) < sequence(b); });
  return MakeError(v1::ERROR_REASON_COLLECTIVE_TIMEOUT,
                   absl::StrCat("rank ", late, " (", workers_[static_cast<size_t>(late)],
                                ") was missing after collective ", sequence(late), "; ", named.message()),
                   {{"ranks", absl::StrCat(late)}, {"operation", call_->operation()}});
}

void RunDriver::OnSuspect(const std::string& worker, const std::string& reason) {
  const auto it = std::find(workers_.begin(), workers_.end(), worker);
  if (it == workers_.end() || letting_go_) return;
  const bool missed = std::any_of(errors_.begin(), errors_.end(), [](const auto& e) { return IsSymptom(e.second); });
  if (missed && call_ != nullptr) Fail(RankLost(static_cast<int>(it - workers_.begin()), reason));
}

void RunDriver::OnLost(const std::string& worker, const std::string& reason) {
  const auto it = std::find(workers_.begin(), workers_.end(), worker);
  if (it == workers_.end()) return;
  const int rank = static_cast<int>(it - workers_.begin());
  if (gone_[static_cast<size_t>(rank)]) return;
  if (letting_go_) return OnLeft(rank);
  gone_[static_cast<size_t>(rank)] = true;
  Fail(RankLost(rank, reason));
}

void RunDriver::StopWork(const absl::Status& why) {
  if (call_ != nullptr) Observe({}, why);
  call_.reset();
  call_done_ = nullptr;
  call_soft_ = nullptr;
  idle_ = false;
  for (EventLoop::TimerId* timer : {&hold_timer_, &read_timer_, &blame_timer_}) {
    around_.loop.Cancel(std::exchange(*timer, 0));
  }
  // What waited is aborted, whatever the cause was called: it may be asked for again.
  const bool lost = ReasonOf(why) == v1::ERROR_REASON_WORKER_LOST;
  const absl::Status aborted = lost ? why
                                    : MakeError(v1::ERROR_REASON_GENERATION_STALE,
                                                absl::StrCat(run().name(), " ended meanwhile: ", why.message()),
                                                {{"seen", absl::StrCat(run().generation())}});
  if (relay_ != nullptr) {
    around_.expect_upload(upload_.first, upload_.second, nullptr);
    std::exchange(relay_, nullptr)->Finish(aborted);
  }
  if (serving_) std::exchange(serving_, std::nullopt)->abort(aborted);
  for (const Demand& demand : std::exchange(demands_, {})) demand.abort(aborted);
}

void RunDriver::Fail(const absl::Status& status) {
  if (letting_go_) return;
  letting_go_ = true;
  StopWork(status);
  const v1::ErrorReason reason = ReasonOf(status);
  around_.store.ForceCommit(entry_, {"StateChanged", std::string(status.message()), {}}, [&](v1::Run& run) {
    MoveTo(run, v1::Run::STATE_FAILED, ReasonName(status), Wall());
    *run.mutable_error() = ToProto(status);
    SetCondition(run, kWorkersReady, v1::Condition::STATUS_FALSE, ReasonName(status), status.message(), Wall());
    if (reason == v1::ERROR_REASON_STATE_DIVERGED) {
      SetCondition(run, kMasksConsistent, v1::Condition::STATUS_FALSE, ReasonName(status), status.message(), Wall());
    } else if (update_open_) {
      SetCondition(run, kMasksConsistent, v1::Condition::STATUS_UNKNOWN, "UpdateOpen",
                   "an update was in flight; nothing of it is served", Wall());
    }
    if (reason == v1::ERROR_REASON_MASK_NOT_EFFECTIVE) {
      SetCondition(run, kMasksEffective, v1::Condition::STATUS_FALSE, ReasonName(status), status.message(), Wall());
    }
  });
  LetGo(std::string(status.message()));
}

void RunDriver::LetGo(const std::string& void_reason) {
  letting_go_ = true;
  for (EventLoop::TimerId* timer : {&hold_timer_, &read_timer_, &blame_timer_}) {
    around_.loop.Cancel(std::exchange(*timer, 0));
  }
  leave_timer_ = around_.loop.After(around_.timeouts.leave, [this] {
    leave_timer_ = 0;
    LogWarn("leave_timeout", {{"run", run().name()}});
    if (run().state() != v1::Run::STATE_CANCELLING) return;
    around_.store.ForceCommit(entry_, {"StateChanged", "cancelled; some workers have not answered", {}},
                              [this](v1::Run& run) { MoveTo(run, v1::Run::STATE_CANCELLED, "", Wall()); });
  });
  for (size_t r = 0; r < workers_.size(); ++r) {
    if (gone_[r]) continue;
    const std::string& worker = workers_[r];
    if (!void_reason.empty()) {
      around_.registry.SendVoid(worker, run().name(), run().generation(), void_reason.substr(0, 500));
    }
    v1::Command command = NewCommand();
    command.mutable_leave_group();
    CommandHandler handler;
    const int rank = static_cast<int>(r);
    handler.done = [this, rank, alive = std::weak_ptr<bool>(alive_)](const absl::StatusOr<v1::Ack>& ack) {
      if (alive.expired()) return;
      if (!ack.ok()) LogWarn("leave_failed", {{"run", run().name()}, {"why", std::string(ack.status().message())}});
      OnLeft(rank);
    };
    if (around_.registry.SendCommand(worker, {command}, std::move(handler)) == 0) gone_[r] = true;
  }
  if (std::all_of(gone_.begin(), gone_.end(), [](bool gone) { return gone; })) EndLife();
}

void RunDriver::OnLeft(int rank) {
  const size_t r = static_cast<size_t>(rank);
  if (gone_[r]) return;
  gone_[r] = true;
  around_.registry.Release(workers_[r], run().name());
  if (std::all_of(gone_.begin(), gone_.end(), [](bool gone) { return gone; })) EndLife();
}

void RunDriver::EndLife() {
  around_.loop.Cancel(std::exchange(leave_timer_, 0));
  for (const auto& [token, save] : entry_.saves) around_.discard({run().name(), save.generation(), save.path(), token});
  if (run().state() == v1::Run::STATE_CANCELLING) {
    around_.store.ForceCommit(entry_, {"StateChanged", "cancelled", {}},
                              [this](v1::Run& run) { MoveTo(run, v1::Run::STATE_CANCELLED, "", Wall()); });
  }
  // Posted: the caller may be this object's own callback.
  around_.loop.Post([ended = around_.ended, name = run().name()] { ended(name); });
}

}  // namespace espalier
