#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "espalier/v1/resources.pb.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "server/fleet/claim.h"
#include "server/fleet/lease.h"
#include "server/fleet/session_link.h"

namespace espalier {

// Told what happens to workers; called from inside the registry's methods.
class FleetListener {
 public:
  virtual ~FleetListener() = default;
  // A worker can be claimed, or asked, that could not before.
  virtual void OnIdle() = 0;
  // Its stream closed or its heartbeats stopped; it may still come back.
  virtual void OnSuspect(const std::string& worker, const std::string& reason) = 0;
  // It is gone: nothing it says counts any more, its claim has ended. Its commands have been answered with WORKER_LOST
  // before.
  virtual void OnLost(const std::string& worker, const std::string& reason) = 0;
};

// What becomes of a command. `done` is called exactly once, last: with the ack when its status is OK, else with that
// error; with WORKER_LOST when the worker is lost before. None is called after Forget.
struct CommandHandler {
  std::function<void(const v1::ResultPage&)> page = [](const v1::ResultPage&) {};
  std::function<void(const v1::CommandProgress&)> progress = [](const v1::CommandProgress&) {};
  std::function<void(absl::StatusOr<v1::Ack>)> done;
};

// Every worker process that ever said Hello and is not forgotten: its stream, its lease, who claimed it, the commands it
// owes an answer to. Workers are called by their bare names. Not thread-safe: the event loop owns it.
//
// Identity is name + incarnation. A new incarnation of a name replaces the old one, which is told so (Dismiss) and whose
// messages are refused from then on, and counted. The same incarnation may come back on a new stream: commands without an
// answer are sent again, in order; the worker executes none twice.
class WorkerRegistry {
 public:
  using SessionId = int64_t;
  static constexpr int kProtocolVersion = 1;
  static constexpr size_t kMaxWorkers = 2048;

  WorkerRegistry(const LeaseOptions& options, const Clock& clock, std::string instance_id);

  // Outlives the registry, or is reset to null.
  void SetListener(FleetListener* listener) { listener_ = listener; }

  // A stream opened; the first message it brings must be Hello.
  SessionId Open(std::shared_ptr<SessionLink> link);
  void Receive(SessionId session, const v1::WorkerMessage& message);
  // The stream ended, whoever ended it.
  void Closed(SessionId session);

  // Looks at all leases; call a few times an interval.
  void Tick();

  // Ends all streams; new ones are refused with the same status.
  void Shutdown(const absl::Status& status);

  // --- worker_registry_use.cc: what runs and clients use

  // Idle checkpoint workers, and the names of all that are connected.
  std::vector<IdleWorker> Idle() const;
  std::vector<std::string> Connected() const;

  void Claim(const std::string& worker, const std::string& run, int rank);
  // The claim of this run ends, if it still is the claim; nothing is sent.
  void Release(const std::string& worker, const std::string& run);

  // Sends a command (in parts when it is long: all but command_id and last_part is set by the caller) and answers its id.
  // 0 when there is no such worker or it is lost; then the handler is not called.
  int64_t SendCommand(const std::string& worker, std::vector<v1::Command> parts, CommandHandler handler);
  // The answer is no longer of interest; when it comes it is counted as refused.
  void Forget(const std::string& worker, int64_t command_id);

  void SendVoid(const std::string& worker, const std::string& run, int64_t generation, const std::string& reason);

  // True when this is the process of that name that counts: known, not replaced and not lost.
  bool IsPresent(const std::string& worker, const std::string& incarnation) const;

  // STATE_UNSPECIFIED for an unknown one.
  LeaseVerdict VerdictOf(const std::string& worker) const;
  // The last one received; empty message without.
  v1::Heartbeat HeartbeatOf(const std::string& worker) const;

  // Sorted by name.
  std::vector<v1::Worker> List() const;

 private:
  struct Pending {
    std::vector<v1::Command> parts;
    CommandHandler handler;
  };
  struct Entry {
    v1::Hello hello;
    SessionId session = 0;
    LeaseState lease;
    v1::Worker::State told = v1::Worker::STATE_UNSPECIFIED;
    int rank = -1;
    int64_t next_command = 1;
    std::map<int64_t, Pending> pending;
    v1::VoidGeneration voided;
    v1::Heartbeat heartbeat;
    absl::Time connect_time;
    absl::Duration lost_since;
    int64_t refused = 0;
    // What it held when it said Hello and nobody wants; it is not idle until it let go.
    bool leaving = false;
    std::set<std::string> replaced;
  };
  struct Session {
    std::shared_ptr<SessionLink> link;
    std::string worker;
  };

  absl::Status CheckHello(const v1::Hello& hello) const;
  void OnHello(SessionId session, const v1::Hello& hello);
  void OnAck(Entry& entry, const v1::Ack& ack);
  void Welcome(SessionId session);
  void LetGo(const std::string& worker, const v1::Hello& holds);
  void Resend(Entry& entry);
  // The entry's present process is gone.
  void Lose(const std::string& worker, const std::string& reason);
  void Refuse(SessionId session, const absl::Status& status);
  SessionLink* LinkOf(const Entry& entry) const;
  LeaseVerdict Verdict(const Entry& entry) const;
  void NotifyIfIdle(Entry& entry);

  const LeaseOptions options_;
  const Clock& clock_;
  const std::string instance_id_;
  FleetListener* listener_ = nullptr;
  std::map<std::string, Entry> entries_;
  std::map<SessionId, Session> sessions_;
  SessionId next_session_ = 1;
  absl::Status shutdown_;
};

}  // namespace espalier
