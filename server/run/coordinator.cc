#include "server/run/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/status_macros.h"
#include "proto/support/uuid.h"
#include "server/fleet/claim.h"
#include "server/run/run_states.h"

namespace espalier {
namespace {

constexpr absl::Duration kExpireInterval = absl::Minutes(10);
constexpr absl::Duration kTellWorkers = absl::Seconds(1);
// After these the directory is left to the next save to the same target, which sweeps it.
constexpr int kDiscardAttempts = 10;

CoordinatorOptions WithBlame(CoordinatorOptions options) {
  options.timeouts.blame = options.lease.lease;
  return options;
}

absl::Duration TickInterval(const LeaseOptions& lease) {
  return std::clamp(std::min(lease.heartbeat_interval / 2, lease.lease / 20), absl::Milliseconds(10), absl::Seconds(1));
}

absl::Status Draining() {
  return MakeError(v1::ERROR_REASON_DRAINING, "the coordinator is shutting down; try again when it is back");
}

}  // namespace

Coordinator::Coordinator(EventLoop& loop, Journal& journal, const CoordinatorOptions& options)
    : loop_(loop),
      journal_(journal),
      options_(WithBlame(options)),
      observer_(options.observer != nullptr ? *options.observer : NullObserver::Instance()),
      instance_id_(NewUuid()),
      registry_(options_.lease, loop.clock(), instance_id_),
      store_(journal, loop.clock(), observer_, options_.store),
      ledger_(loop.clock()),
      inspector_(loop, registry_, options_.inspect_patience) {
  registry_.SetListener(this);
  Tick();
  Bookmarks();
  ExpireRequests();
}

Coordinator::~Coordinator() {
  registry_.SetListener(nullptr);
  for (const auto& [name, id] : timers_) loop_.Cancel(id);
}

void Coordinator::Tick() {
  registry_.Tick();
  if (const absl::Duration now = loop_.Now(); now - workers_told_ >= kTellWorkers) {
    workers_told_ = now;
    observer_.OnWorkers(registry_.List());
  }
  timers_["tick"] = loop_.After(TickInterval(options_.lease), [this] { Tick(); });
}

void Coordinator::Bookmarks() {
  store_.SendBookmarks();
  timers_["bookmarks"] = loop_.After(options_.bookmark_interval, [this] { Bookmarks(); });
}

void Coordinator::ExpireRequests() {
  const std::vector<JournalRecord> rows = ledger_.Expire();
  if (!rows.empty()) {
    const absl::Status status = journal_.Append(rows);
    if (!status.ok()) LogError("journal_write", {{"error", std::string(status.message())}});
  }
  timers_["requests"] = loop_.After(kExpireInterval, [this] { ExpireRequests(); });
}

absl::Status Coordinator::Load() {
  const std::vector<JournalRecord> rows = journal_.Read();
  ESPALIER_RETURN_IF_ERROR(store_.Load(rows));
  ESPALIER_RETURN_IF_ERROR(ledger_.Load(rows));
  for (const auto& [sequence, entry] : store_.ordered()) Recover(*entry);
  ScheduleSoon();
  return absl::OkStatus();
}

// What a run that was live becomes: its workers may still be there, but nobody knows any more what they were told.
void Coordinator::Recover(RunEntry& entry) {
  for (const auto& [token, save] : entry.saves) {
    discards_[token].discard = {entry.run.name(), save.generation(), save.path(), token};
  }
  const v1::Run::State state = entry.run.state();
  if (IsTerminal(state)) return;
  if (state == v1::Run::STATE_QUEUED) {
    queue_.push_back(entry.run.name());
    return;
  }
  const absl::Time now = loop_.clock().Wall();
  if (state == v1::Run::STATE_CANCELLING) {
    store_.ForceCommit(entry, {"StateChanged", "cancelled; the coordinator restarted meanwhile", {}},
                       [&](v1::Run& run) { MoveTo(run, v1::Run::STATE_CANCELLED, "", now); });
    return;
  }
  const bool publishing =
      std::any_of(entry.saves.begin(), entry.saves.end(), [](const auto& save) { return save.second.prepared(); });
  const absl::Status error = MakeError(
      v1::ERROR_REASON_WORKER_LOST,
      absl::StrCat("the coordinator restarted while ", entry.run.name(), " was ", StateName(state),
                   ", and its workers were let go",
                   publishing ? "; a checkpoint was being published: where its directory stands it is complete" : "",
                   "; submit it again"),
      {{"run", entry.run.name()}});
  store_.ForceCommit(entry, {"StateChanged", std::string(error.message()), {}}, [&](v1::Run& run) {
    MoveTo(run, v1::Run::STATE_FAILED, "the coordinator restarted", now);
    *run.mutable_error() = ToProto(error);
    SetCondition(run, kWorkersReady, v1::Condition::STATUS_FALSE, "WORKER_LOST", error.message(), now);
    for (v1::Operation& operation : *run.mutable_operations()) {
      if (operation.state() != v1::Operation::STATE_RUNNING) continue;
      operation.set_state(v1::Operation::STATE_FAILED);
      *operation.mutable_error() = ToProto(error);
      *operation.mutable_end_time() = ToTimestamp(now);
    }
  });
}

void Coordinator::Drain() {
  if (draining_) return;
  draining_ = true;
  inspector_.Stop(Draining());
  for (const auto& [name, driver] : drivers_) {
    driver->Stop(MakeError(v1::ERROR_REASON_DRAINING,
                           absl::StrCat("the coordinator was stopped while ", name, " was live; submit it again")));
  }
  store_.EndWatchers(Draining());
  registry_.Shutdown(Draining());
}

// --- workers

void Coordinator::OnIdle() {
  ScheduleSoon();
}

void Coordinator::OnSuspect(const std::string& worker, const std::string& reason) {
  for (const auto& [name, driver] : drivers_) driver->OnSuspect(worker, reason);
}

void Coordinator::OnLost(const std::string& worker, const std::string& reason) {
  observer_.OnWorkerLost();
  for (const auto& [name, driver] : drivers_) driver->OnLost(worker, reason);
}

absl::StatusOr<std::shared_ptr<UploadRelay>> Coordinator::FindUpload(const v1::UploadParameterRequest& first) {
  const auto it = uploads_.find({first.worker(), first.command_id()});
  if (it == uploads_.end()) {
    return MakeError(v1::ERROR_REASON_OPERATION_NOT_FOUND,
                     absl::StrCat("nobody waits for the upload of command ", first.command_id()),
                     {{"operation", absl::StrCat(first.command_id())}});
  }
  if (!registry_.IsPresent(first.worker(), first.incarnation())) {
    return MakeError(v1::ERROR_REASON_GENERATION_STALE,
                     absl::StrCat("upload of worker ", first.worker(), " in incarnation ", first.incarnation(),
                                  ", which was not asked for it"),
                     {{"given", first.incarnation()}});
  }
  return it->second;
}

// --- the queue

void Coordinator::ScheduleSoon() {
  if (std::exchange(schedule_posted_, true)) return;
  loop_.Post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    schedule_posted_ = false;
    Schedule();
  });
}

// First come, first served: a run that waits for many workers is not overtaken by one that needs few.
void Coordinator::Schedule() {
  TryDiscards();
  while (!queue_.empty() && !draining_) {
    RunEntry& entry = *store_.Find(queue_.front());
    ClaimDecision decision = DecideClaim(entry.run.world_size(), registry_.Idle());
    if (decision.workers.empty()) {
      if (entry.run.state_reason() == decision.reason) return;
      const absl::Status status = store_.Commit(entry, {"StateChanged", decision.reason, {}},
                                                [&](v1::Run& run) { run.set_state_reason(decision.reason); });
      if (!status.ok()) LogError("journal_write", {{"error", std::string(status.message())}});
      return;
    }
    queue_.pop_front();
    StartRun(entry, std::move(decision.workers));
  }
}

void Coordinator::StartRun(RunEntry& entry, std::vector<std::string> workers) {
  const std::string name = entry.run.name();
  for (size_t r = 0; r < workers.size(); ++r) registry_.Claim(workers[r], name, static_cast<int>(r));
  RunSurroundings around{
      .loop = loop_,
      .registry = registry_,
      .store = store_,
      .observer = observer_,
      .timeouts = options_.timeouts,
      .expect_upload =
          [this](const std::string& worker, int64_t command_id, std::shared_ptr<UploadRelay> relay) {
            if (relay == nullptr) {
              uploads_.erase({worker, command_id});
            } else {
              uploads_[{worker, command_id}] = std::move(relay);
            }
          },
      .discard =
          [this](const Discard& discard) {
            discards_[discard.token].discard = discard;
            ScheduleSoon();
          },
      .ended =
          [this, alive = std::weak_ptr<bool>(alive_)](const std::string& run) {
            if (!alive.expired()) OnRunEnded(run);
          },
  };
  auto driver = std::make_unique<RunDriver>(std::move(around), entry);
  RunDriver& started = *(drivers_[name] = std::move(driver));
  started.Start(std::move(workers));
}

void Coordinator::OnRunEnded(const std::string& run) {
  drivers_.erase(run);
  ScheduleSoon();
}

void Coordinator::ReleaseQueued(const std::string& run) {
  queue_.erase(std::remove(queue_.begin(), queue_.end(), run), queue_.end());
}

// --- what saves left behind

void Coordinator::TryDiscards() {
  const std::vector<IdleWorker> idle = registry_.Idle();
  if (idle.empty() || draining_) return;
  for (auto& [token, pending] : discards_) {
    if (pending.in_flight) continue;
    // Another worker each time: not every one may see the directory.
    const std::string& worker = idle[static_cast<size_t>(pending.attempts) % idle.size()].name;
    v1::Command command;
    command.set_run(pending.discard.run);
    command.set_generation(pending.discard.generation);
    command.mutable_discard_checkpoint()->set_path(pending.discard.path);
    command.mutable_discard_checkpoint()->set_token(token);
    CommandHandler handler;
    handler.done = [this, token = token](const absl::StatusOr<v1::Ack>& ack) { DiscardDone(token, ack.status()); };
    ++pending.attempts;
    pending.in_flight = registry_.SendCommand(worker, {command}, std::move(handler)) != 0;
  }
}

void Coordinator::DiscardDone(const std::string& token, const absl::Status& status) {
  PendingDiscard& pending = discards_[token];
  pending.in_flight = false;
  if (!status.ok() && pending.attempts < kDiscardAttempts) return ScheduleSoon();
  if (!status.ok()) LogWarn("discard_failed", {{"token", token}, {"error", std::string(status.message())}});
  if (RunEntry* entry = store_.Find(pending.discard.run)) {
    entry->saves.erase(token);
    const std::vector<JournalRecord> rows = {{"save", pending.discard.run, token, "", /*erase=*/true}};
    const absl::Status written = journal_.Append(rows);
    if (!written.ok()) LogError("journal_write", {{"error", std::string(written.message())}});
  }
  discards_.erase(token);
}

}  // namespace espalier
