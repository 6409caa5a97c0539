// What runs and clients use the registry for: claims, commands, and what is known of workers.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/names.h"
#include "server/fleet/worker_registry.h"

namespace espalier {

using google::protobuf::util::TimeUtil;

std::vector<IdleWorker> WorkerRegistry::Idle() const {
  std::vector<IdleWorker> idle;
  for (const auto& [name, entry] : entries_) {
    if (Verdict(entry).state != v1::Worker::STATE_IDLE) continue;
    idle.push_back({name, entry.hello.backends().empty() ? "" : entry.hello.backends(0)});
  }
  return idle;
}

std::vector<std::string> WorkerRegistry::Connected() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    const v1::Worker::State state = Verdict(entry).state;
    if (state == v1::Worker::STATE_IDLE || state == v1::Worker::STATE_BUSY) names.push_back(name);
  }
  return names;
}

void WorkerRegistry::Claim(const std::string& worker, const std::string& run, int rank) {
  Entry& entry = entries_[worker];
  entry.lease.run = run;
  entry.rank = rank;
}

void WorkerRegistry::Release(const std::string& worker, const std::string& run) {
  const auto it = entries_.find(worker);
  if (it == entries_.end() || it->second.lease.run != run) return;
  it->second.lease.run.clear();
  it->second.rank = -1;
  it->second.voided.Clear();
  NotifyIfIdle(it->second);
}

int64_t WorkerRegistry::SendCommand(const std::string& worker, std::vector<v1::Command> parts, CommandHandler handler) {
  const auto it = entries_.find(worker);
  if (it == entries_.end() || it->second.lease.lost) return 0;
  Entry& entry = it->second;
  const int64_t id = entry.next_command++;
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].set_command_id(id);
    parts[i].set_last_part(i + 1 == parts.size());
  }
  if (SessionLink* link = LinkOf(entry)) {
    v1::CoordinatorMessage message;
    for (const v1::Command& part : parts) {
      *message.mutable_command() = part;
      link->Send(message);
    }
  }
  entry.pending[id] = {std::move(parts), std::move(handler)};
  return id;
}

void WorkerRegistry::Forget(const std::string& worker, int64_t command_id) {
  const auto it = entries_.find(worker);
  if (it != entries_.end()) it->second.pending.erase(command_id);
}

void WorkerRegistry::SendVoid(const std::string& worker, const std::string& run, int64_t generation,
                              const std::string& reason) {
  const auto it = entries_.find(worker);
  if (it == entries_.end() || it->second.lease.lost) return;
  v1::CoordinatorMessage message;
  v1::VoidGeneration& voided = *message.mutable_void_generation();
  voided.set_run(run);
  voided.set_generation(generation);
  voided.set_reason(reason);
  it->second.voided = voided;
  if (SessionLink* link = LinkOf(it->second)) link->Send(message);
}

bool WorkerRegistry::IsPresent(const std::string& worker, const std::string& incarnation) const {
  const auto it = entries_.find(worker);
  return it != entries_.end() && it->second.hello.incarnation() == incarnation && !it->second.lease.lost;
}

LeaseVerdict WorkerRegistry::VerdictOf(const std::string& worker) const {
  const auto it = entries_.find(worker);
  return it == entries_.end() ? LeaseVerdict{} : Verdict(it->second);
}

v1::Heartbeat WorkerRegistry::HeartbeatOf(const std::string& worker) const {
  const auto it = entries_.find(worker);
  return it == entries_.end() ? v1::Heartbeat() : it->second.heartbeat;
}

std::vector<v1::Worker> WorkerRegistry::List() const {
  std::vector<v1::Worker> workers;
  for (const auto& [name, entry] : entries_) {
    const LeaseVerdict verdict = Verdict(entry);
    v1::Worker worker;
    worker.set_name(WorkerName(name));
    worker.set_incarnation(entry.hello.incarnation());
    worker.set_kind(entry.hello.kind());
    worker.set_state(verdict.state);
    worker.set_state_reason(verdict.reason);
    worker.set_host(entry.hello.host());
    worker.set_device(entry.hello.device());
    worker.set_run(entry.lease.run);
    worker.set_rank(entry.rank);
    *worker.mutable_connect_time() = TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(entry.connect_time));
    *worker.mutable_since_heartbeat() =
        TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(clock_.Monotonic() - entry.lease.last_heard));
    worker.set_refused_messages(entry.refused);
    worker.set_version(entry.hello.version());
    const v1::Heartbeat& beat = entry.heartbeat;
    // What a lost worker last said it did, it does no longer.
    if (!beat.operation().empty() && verdict.state != v1::Worker::STATE_LOST) {
      worker.set_activity(beat.in_collective()
                              ? absl::StrCat(beat.operation(), ": waiting in collective ", beat.collective_sequence())
                              : beat.operation());
    }
    workers.push_back(std::move(worker));
  }
  return workers;
}

}  // namespace espalier
