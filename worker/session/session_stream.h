#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "espalier/v1/worker_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/support/mutex.h"

namespace espalier {

// One call of WorkerService.Session: from its start to its end, whoever ends it. The owner keeps it until Ended was called, and
// drops it on a thread of its own. Thread-safe.
class SessionStream final : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  // Called by gRPC's threads, one message at a time; must not block.
  using Receive = std::function<void(v1::CoordinatorMessage&)>;
  // Called once, last.
  using Ended = std::function<void(const absl::Status&)>;

  static std::shared_ptr<SessionStream> Start(std::shared_ptr<grpc::Channel> channel, Receive receive, Ended ended);

  // Messages are written in order. Dropped when the stream has ended: who needs them is answered again on the next.
  void Send(v1::WorkerMessage message);
  // Written before all that waits; one that still waits is replaced, so that heartbeats never pile up.
  void SendHeartbeat(const v1::Heartbeat& heartbeat);
  // Says that nothing more comes, once all that waits is written.
  void Finish();
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  SessionStream(std::shared_ptr<grpc::Channel> channel, Receive receive, Ended ended);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  const Receive receive_;
  const Ended ended_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;  // of the read in flight
  std::shared_ptr<SessionStream> self_;

  Mutex mutex_;
  std::deque<v1::WorkerMessage> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::WorkerMessage> heartbeat_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerMessage outgoing_ ABSL_GUARDED_BY(mutex_);  // of the write in flight
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  // No operation may be started any more.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace espalier
