#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/support/backoff.h"
#include "proto/support/channel.h"
#include "proto/support/clock.h"
#include "proto/support/mutex.h"
#include "worker/session/session_stream.h"

namespace espalier {

// Who lives at the worker's end of the link. Called by gRPC's threads and by the one in Run; must not block.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  virtual v1::Hello MakeHello() = 0;
  virtual v1::Heartbeat MakeHeartbeat() = 0;
  // Before the first command of a stream.
  virtual void OnWelcome(const v1::Welcome& welcome) = 0;
  virtual void OnCommand(v1::Command command) = 0;
  virtual void OnVoidGeneration(const v1::VoidGeneration& message) = 0;
  // A stream that was welcomed has ended.
  virtual void OnSessionEnded() {}
};

struct LinkOptions {
  std::string coordinator;  // host:port
  BackoffOptions backoff = {.initial = absl::Milliseconds(100), .factor = 1.5, .max = absl::Seconds(5), .jitter = 0.2};
  uint64_t seed = 0;  // of the back-off's jitter: differs between workers, so that they do not dial as one
  // A coordinator that accepts and says nothing is given up after this.
  absl::Duration welcome_timeout = absl::Seconds(10);
  // Run gives up when there was no session for this long.
  absl::Duration give_up_after = absl::InfiniteDuration();
};

// The worker's session with the coordinator across breaks: dials, says Hello, beats, dials again with back-off. Send and
// Stop are thread-safe.
class Link {
 public:
  Link(LinkOptions options, LinkHandler& handler, const Clock& clock = SystemClock())
      : options_(std::move(options)),
        handler_(handler),
        clock_(clock),
        channel_(DialCoordinator(options_.coordinator)) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Serves until Stop or a Dismiss: OK. Errors: what the coordinator refuses for good (GENERATION_STALE, WORKER_KIND,
  // REQUEST_INVALID), UNREACHABLE after give_up_after. Call once. The calling thread sends the heartbeats.
  absl::Status Run();

  // Queues a message on the present stream. Without one it is dropped.
  void Send(v1::WorkerMessage message);

  // Ends the session after all that waits is written.
  void Stop();

 private:
  struct Ending {
    absl::Status status;
    bool welcomed = false;
  };
  Ending Serve();
  void Receive(v1::CoordinatorMessage& message);
  // False when stopped meanwhile.
  bool Pause(absl::Duration duration);

  const LinkOptions options_;
  LinkHandler& handler_;
  const Clock& clock_;
  // One for all sessions.
  const std::shared_ptr<grpc::Channel> channel_;

  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<SessionStream> stream_ ABSL_GUARDED_BY(mutex_);
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool dismissed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  absl::Duration heartbeat_interval_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1);
};

}  // namespace espalier
