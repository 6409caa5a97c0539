#include "server/fleet/worker_registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/names.h"
#include "proto/support/uuid.h"

namespace espalier {
namespace {

constexpr absl::Duration kKeepLost = absl::Hours(1);
constexpr size_t kKeepReplaced = 256;

google::protobuf::Duration ToProtoDuration(absl::Duration duration) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(duration));
}

absl::Status LostError(const std::string& worker, const std::string& reason) {
  return MakeError(v1::ERROR_REASON_WORKER_LOST, absl::StrCat("worker ", worker, " was lost: ", reason),
                   {{"worker", worker}});
}

}  // namespace

WorkerRegistry::WorkerRegistry(const LeaseOptions& options, const Clock& clock, std::string instance_id)
    : options_(options), clock_(clock), instance_id_(std::move(instance_id)) {}

WorkerRegistry::SessionId WorkerRegistry::Open(std::shared_ptr<SessionLink> link) {
  const SessionId id = next_session_++;
  sessions_[id].link = std::move(link);
  if (!shutdown_.ok()) Refuse(id, shutdown_);
  return id;
}

void WorkerRegistry::Refuse(SessionId session, const absl::Status& status) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  const std::shared_ptr<SessionLink> link = it->second.link;
  sessions_.erase(it);
  link->Close(status);
}

SessionLink* WorkerRegistry::LinkOf(const Entry& entry) const {
  const auto it = sessions_.find(entry.session);
  return it == sessions_.end() ? nullptr : it->second.link.get();
}

absl::Status WorkerRegistry::CheckHello(const v1::Hello& hello) const {
  if (hello.protocol_version() != kProtocolVersion) {
    return MakeError(v1::ERROR_REASON_WORKER_KIND,
                     absl::StrCat("worker ", hello.worker(), " speaks protocol version ", hello.protocol_version(),
                                  ", this coordinator ", kProtocolVersion, "; install the same release on both"),
                     {{"kind", absl::StrCat(hello.protocol_version())}});
  }
  if (!IsValidId(hello.worker())) {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                     absl::StrCat("Hello: worker name '", hello.worker().substr(0, 80),
                                  "' is not of [a-z0-9.-], 1 to 63 characters; start the worker with --name"),
                     {{"field", "worker"}});
  }
  if (!IsUuid(hello.incarnation())) {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID, "Hello: incarnation is not a UUID", {{"field", "incarnation"}});
  }
  if (hello.kind() != v1::WORKER_KIND_CHECKPOINT) {
    return MakeError(v1::ERROR_REASON_WORKER_KIND,
                     absl::StrCat("worker ", hello.worker(), " is of kind ", v1::WorkerKind_Name(hello.kind()),
                                  "; this coordinator serves checkpoint workers"),
                     {{"kind", v1::WorkerKind_Name(hello.kind())}});
  }
  if (entries_.size() >= kMaxWorkers && !entries_.contains(hello.worker())) {
    return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                     absl::StrCat("this coordinator knows ", kMaxWorkers, " workers already"),
                     {{"limit", absl::StrCat(kMaxWorkers)}, {"value", absl::StrCat(entries_.size() + 1)}});
  }
  return absl::OkStatus();
}

void WorkerRegistry::Receive(SessionId session, const v1::WorkerMessage& message) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  if (message.has_hello()) {
    if (!it->second.worker.empty()) {
      Refuse(session,
             MakeError(v1::ERROR_REASON_REQUEST_INVALID, "a second Hello on one stream", {{"field", "hello"}}));
      return;
    }
    OnHello(session, message.hello());
    return;
  }
  if (it->second.worker.empty()) {
    Refuse(session, MakeError(v1::ERROR_REASON_REQUEST_INVALID, "the first message of a session must be Hello",
                              {{"field", "hello"}}));
    return;
  }
  const auto found = entries_.find(it->second.worker);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (entry.session != session) {
    ++entry.refused;
    LogWarn("message_refused", {{"worker", it->second.worker}, {"why", "of an older incarnation or stream"}});
    return;
  }
  entry.lease.last_heard = clock_.Monotonic();
  if (std::exchange(entry.told, v1::Worker::STATE_UNSPECIFIED) == v1::Worker::STATE_SUSPECT) {
    LogInfo("worker_recovered", {{"worker", it->second.worker}});
  }
  switch (message.message_case()) {
    case v1::WorkerMessage::kHeartbeat:
      entry.heartbeat = message.heartbeat();
      break;
    case v1::WorkerMessage::kAck:
      OnAck(entry, message.ack());
      break;
    case v1::WorkerMessage::kPage: {
      const auto pending = entry.pending.find(message.page().command_id());
      if (pending == entry.pending.end()) {
        ++entry.refused;
      } else {
        pending->second.handler.page(message.page());
      }
      break;
    }
    case v1::WorkerMessage::kProgress: {
      const auto pending = entry.pending.find(message.progress().command_id());
      if (pending != entry.pending.end()) pending->second.handler.progress(message.progress());
      break;
    }
    default:
      break;
  }
}

void WorkerRegistry::OnHello(SessionId session, const v1::Hello& hello) {
  const absl::Status valid = CheckHello(hello);
  if (!valid.ok()) {
    LogWarn("hello_refused", {{"worker", hello.worker()}, {"why", std::string(valid.message())}});
    Refuse(session, valid);
    return;
  }
  const std::string& worker = hello.worker();
  if (const auto it = entries_.find(worker); it != entries_.end()) {
    Entry& entry = it->second;
    if (entry.replaced.contains(hello.incarnation())) {
      ++entry.refused;
      Refuse(session, MakeError(v1::ERROR_REASON_GENERATION_STALE,
                                absl::StrCat("worker ", worker, ": incarnation ", hello.incarnation(),
                                             " was replaced by ", entry.hello.incarnation()),
                                {{"seen", entry.hello.incarnation()}, {"given", hello.incarnation()}}));
      return;
    }
    if (entry.hello.incarnation() != hello.incarnation()) {
      const std::string old = entry.hello.incarnation();
      LogInfo("worker_replaced", {{"worker", worker}, {"old", old}, {"new", hello.incarnation()}});
      if (SessionLink* link = LinkOf(entry)) {
        v1::CoordinatorMessage message;
        message.mutable_dismiss()->set_reason(absl::StrCat("replaced by incarnation ", hello.incarnation()));
        link->Send(message);
      }
      Lose(worker, "replaced by a new incarnation");
      Entry fresh;
      fresh.refused = entry.refused;
      fresh.replaced = std::move(entry.replaced);
      if (fresh.replaced.size() >= kKeepReplaced) fresh.replaced.erase(fresh.replaced.begin());
      fresh.replaced.insert(old);
      entry = std::move(fresh);
    } else if (entry.session != 0) {
      // The same process on a new stream: the old one is half open.
      const SessionId stale = std::exchange(entry.session, 0);
      Refuse(stale, MakeError(v1::ERROR_REASON_GENERATION_STALE, "the worker opened another stream",
                              {{"seen", hello.incarnation()}, {"given", hello.incarnation()}}));
    }
  }
  Entry& entry = entries_[worker];
  const bool returning = !entry.hello.incarnation().empty();
  entry.hello = hello;
  entry.session = session;
  entry.lease.connected = true;
  entry.lease.lost = false;
  entry.lease.lost_reason.clear();
  entry.lease.last_heard = clock_.Monotonic();
  entry.told = v1::Worker::STATE_UNSPECIFIED;
  entry.heartbeat.Clear();
  if (!returning) entry.connect_time = clock_.Wall();
  sessions_[session].worker = worker;
  LogInfo("worker_connected", {{"worker", worker},
                               {"incarnation", hello.incarnation()},
                               {"host", hello.host()},
                               {"version", hello.version()},
                               {"holds", hello.run()}});
  if (hello.version() != ESPALIER_VERSION) {
    LogWarn("versions_differ", {{"worker", worker},
                                {"its", hello.version()},
                                {"ours", ESPALIER_VERSION},
                                {"effect", "they understand each other; install one release on both when you can"}});
  }
  Welcome(session);
  Resend(entry);
  const bool wanted = !entry.lease.run.empty();
  if (!hello.run().empty() && !wanted && !entry.leaving) LetGo(worker, hello);
  NotifyIfIdle(entry);
}

void WorkerRegistry::Welcome(SessionId session) {
  v1::CoordinatorMessage message;
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome.set_instance_id(instance_id_);
  *welcome.mutable_heartbeat_interval() = ToProtoDuration(options_.heartbeat_interval);
  *welcome.mutable_lease() = ToProtoDuration(options_.lease);
  sessions_[session].link->Send(message);
}

void WorkerRegistry::Resend(Entry& entry) {
  SessionLink* link = LinkOf(entry);
  v1::CoordinatorMessage message;
  if (!entry.voided.run().empty()) {
    *message.mutable_void_generation() = entry.voided;
    link->Send(message);
  }
  for (const auto& [id, pending] : entry.pending) {
    for (const v1::Command& part : pending.parts) {
      *message.mutable_command() = part;
      link->Send(message);
    }
  }
}

void WorkerRegistry::LetGo(const std::string& worker, const v1::Hello& holds) {
  SendVoid(worker, holds.run(), holds.generation(), "no such run is live at this coordinator");
  v1::Command command;
  command.set_run(holds.run());
  command.set_generation(holds.generation());
  command.mutable_leave_group();
  entries_[worker].leaving = true;
  CommandHandler handler;
  handler.done = [this, worker](const absl::StatusOr<v1::Ack>& ack) {
    if (!ack.ok()) LogWarn("leave_failed", {{"worker", worker}, {"why", std::string(ack.status().message())}});
    Entry& entry = entries_[worker];
    entry.leaving = false;
    NotifyIfIdle(entry);
  };
  SendCommand(worker, {command}, std::move(handler));
}

void WorkerRegistry::OnAck(Entry& entry, const v1::Ack& ack) {
  const auto it = entry.pending.find(ack.command_id());
  if (it == entry.pending.end() || it->second.parts.front().generation() != ack.generation()) {
    ++entry.refused;
    LogWarn("ack_refused", {{"worker", entry.hello.worker()},
                            {"command", absl::StrCat(ack.command_id())},
                            {"generation", absl::StrCat(ack.generation())}});
    return;
  }
  const CommandHandler handler = std::move(it->second.handler);
  entry.pending.erase(it);
  const absl::Status status = FromProto(ack.status());
  if (status.ok()) {
    handler.done(ack);
  } else {
    handler.done(status);
  }
}

void WorkerRegistry::Closed(SessionId session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  const std::string worker = it->second.worker;
  sessions_.erase(it);
  const auto found = entries_.find(worker);
  if (found == entries_.end() || found->second.session != session) return;
  Entry& entry = found->second;
  entry.session = 0;
  entry.lease.connected = false;
  LogInfo("worker_disconnected", {{"worker", worker}});
  Tick();
}

void WorkerRegistry::Lose(const std::string& worker, const std::string& reason) {
  Entry& entry = entries_[worker];
  if (entry.lease.lost) return;
  entry.lease.lost = true;
  entry.lease.lost_reason = reason;
  entry.lease.connected = false;
  entry.lost_since = clock_.Monotonic();
  entry.told = v1::Worker::STATE_LOST;
  entry.leaving = false;
  entry.voided.Clear();
  LogWarn("worker_lost", {{"worker", worker}, {"run", entry.lease.run}, {"why", reason}});
  entry.lease.run.clear();
  entry.rank = -1;
  const SessionId session = std::exchange(entry.session, 0);
  const std::map<int64_t, Pending> pending = std::exchange(entry.pending, {});
  Refuse(session, LostError(worker, reason));
  for (const auto& [id, each] : pending) each.handler.done(LostError(worker, reason));
  if (listener_ != nullptr) listener_->OnLost(worker, reason);
}

void WorkerRegistry::Tick() {
  const absl::Duration now = clock_.Monotonic();
  // The listener may claim and release, but entries come and go only here and in OnHello.
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  for (const std::string& name : names) {
    Entry& entry = entries_[name];
    if (entry.lease.lost) {
      if (now - entry.lost_since >= kKeepLost && entry.lease.run.empty()) entries_.erase(name);
      continue;
    }
    const LeaseVerdict verdict = Verdict(entry);
    if (verdict.state == entry.told) continue;
    entry.told = verdict.state;
    if (verdict.state == v1::Worker::STATE_LOST) {
      entry.told = v1::Worker::STATE_UNSPECIFIED;
      Lose(name, verdict.reason);
    } else if (verdict.state == v1::Worker::STATE_SUSPECT) {
      LogWarn("worker_suspect", {{"worker", name}, {"why", verdict.reason}});
      if (listener_ != nullptr) listener_->OnSuspect(name, verdict.reason);
    } else if (verdict.state == v1::Worker::STATE_IDLE) {
      NotifyIfIdle(entry);
    }
  }
}

LeaseVerdict WorkerRegistry::Verdict(const Entry& entry) const {
  LeaseVerdict verdict = DecideLease(clock_.Monotonic(), entry.lease, options_);
  if (verdict.state == v1::Worker::STATE_IDLE && entry.leaving) {
    return {v1::Worker::STATE_BUSY, absl::StrCat("letting go of ", entry.hello.run())};
  }
  return verdict;
}

void WorkerRegistry::NotifyIfIdle(Entry& entry) {
  if (Verdict(entry).state == v1::Worker::STATE_IDLE && listener_ != nullptr) listener_->OnIdle();
}

void WorkerRegistry::Shutdown(const absl::Status& status) {
  shutdown_ = status;
  listener_ = nullptr;
  const std::map<SessionId, Session> sessions = std::exchange(sessions_, {});
  for (auto& [name, entry] : entries_) {
    entry.session = 0;
    entry.lease.connected = false;
    entry.pending.clear();
  }
  for (const auto& [id, session] : sessions) session.link->Close(status);
}

}  // namespace espalier
