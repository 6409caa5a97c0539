#include "worker/session/link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"

namespace espalier {
namespace {

// How long an ended session may take to say so before it is cut.
constexpr absl::Duration kFarewell = absl::Seconds(2);

bool IsFinal(const absl::Status& status) {
  switch (ReasonOf(status)) {
    case v1::ERROR_REASON_GENERATION_STALE:
    case v1::ERROR_REASON_WORKER_KIND:
    case v1::ERROR_REASON_REQUEST_INVALID:
      return true;
    default:
      return false;
  }
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

}  // namespace

absl::Status Link::Run() {
  Backoff backoff(options_.backoff, options_.seed);
  absl::Duration last_seen = clock_.Monotonic();
  while (true) {
    const Ending ending = Serve();
    if (ending.welcomed) handler_.OnSessionEnded();
    {
      MutexLock lock(mutex_);
      if (stopped_ || dismissed_) return absl::OkStatus();
    }
    if (IsFinal(ending.status)) return ending.status;
    if (ending.welcomed) {
      backoff.Reset();
      last_seen = clock_.Monotonic();
    }
    const absl::Duration without = clock_.Monotonic() - last_seen;
    if (without >= options_.give_up_after) {
      return MakeError(v1::ERROR_REASON_UNREACHABLE,
                       absl::StrCat("no session with the coordinator at ", options_.coordinator, " for ",
                                    absl::FormatDuration(without), " (", ending.status.message(), ")"),
                       {{"address", options_.coordinator}});
    }
    const absl::Duration delay = backoff.Next();
    LogWarn("session_lost", {{"coordinator", options_.coordinator},
                             {"why", std::string(ending.status.message())},
                             {"retry_in", absl::FormatDuration(absl::Trunc(delay, absl::Milliseconds(1)))}});
    if (!Pause(delay)) return absl::OkStatus();
  }
}

Link::Ending Link::Serve() {
  {
    MutexLock lock(mutex_);
    if (stopped_) return {};
    welcomed_ = ended_ = false;
    status_ = absl::OkStatus();
  }
  const std::shared_ptr<SessionStream> stream = SessionStream::Start(
      channel_, [this](v1::CoordinatorMessage& message) { Receive(message); },
      [this](const absl::Status& status) {
        MutexLock lock(mutex_);
        ended_ = true;
        status_ = status;
        changed_.SignalAll();
      });
  v1::WorkerMessage hello;
  *hello.mutable_hello() = handler_.MakeHello();

  MutexLock lock(mutex_);
  // Before the Hello is out: the answer may be a command that is executed at once.
  stream_ = stream;
  stream->Send(std::move(hello));
  const absl::Duration start = clock_.Monotonic();
  absl::Duration next_beat = absl::InfiniteDuration();
  absl::Duration cut_at = start + options_.welcome_timeout;
  bool parting = false;
  bool silent = false;
  while (!ended_) {
    const absl::Duration now = clock_.Monotonic();
    if (welcomed_ && next_beat == absl::InfiniteDuration()) {
      next_beat = now;
      if (!parting) cut_at = absl::InfiniteDuration();
    }
    if ((stopped_ || dismissed_) && !parting) {
      parting = true;
      stream->Finish();
      cut_at = now + kFarewell;
    }
    if (now >= cut_at) {
      silent = !parting;
      stream->Cancel();
      cut_at = absl::InfiniteDuration();
    }
    if (now >= next_beat) {
      next_beat = now + heartbeat_interval_;
      stream->SendHeartbeat(handler_.MakeHeartbeat());
    }
    const absl::Duration wait = std::min(next_beat, cut_at) - now;
    // Bounded, so that an infinite wait needs no case of its own.
    changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(std::clamp(wait, absl::ZeroDuration(), absl::Seconds(60))));
  }
  stream_ = nullptr;
  absl::Status status = silent ? absl::UnavailableError("the coordinator accepted and said nothing") : status_;
  if (status.ok()) status = absl::UnavailableError("the coordinator closed the session");
  return {std::move(status), welcomed_};
}

void Link::Receive(v1::CoordinatorMessage& message) {
  switch (message.message_case()) {
    case v1::CoordinatorMessage::kWelcome: {
      handler_.OnWelcome(message.welcome());
      const absl::Duration interval = FromProto(message.welcome().heartbeat_interval());
      MutexLock lock(mutex_);
      welcomed_ = true;
      if (interval > absl::ZeroDuration()) heartbeat_interval_ = interval;
      changed_.SignalAll();
      return;
    }
    case v1::CoordinatorMessage::kCommand:
      handler_.OnCommand(std::move(*message.mutable_command()));
      return;
    case v1::CoordinatorMessage::kVoidGeneration:
      handler_.OnVoidGeneration(message.void_generation());
      return;
    case v1::CoordinatorMessage::kDismiss: {
      LogInfo("dismissed", {{"reason", message.dismiss().reason()}});
      MutexLock lock(mutex_);
      dismissed_ = true;
      changed_.SignalAll();
      return;
    }
    case v1::CoordinatorMessage::MESSAGE_NOT_SET:
      LogWarn("unknown_message", {});
      return;
  }
}

bool Link::Pause(absl::Duration duration) {
  const absl::Duration until = clock_.Monotonic() + duration;
  MutexLock lock(mutex_);
  while (!stopped_) {
    const absl::Duration left = until - clock_.Monotonic();
    if (left <= absl::ZeroDuration()) return true;
    changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(left));
  }
  return false;
}

void Link::Send(v1::WorkerMessage message) {
  std::shared_ptr<SessionStream> stream;
  {
    MutexLock lock(mutex_);
    stream = stream_;
  }
  if (stream != nullptr) stream->Send(std::move(message));
}

void Link::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  changed_.SignalAll();
}

}  // namespace espalier
