#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/support/grpc_status.h"
#include "proto/support/mutex.h"
#include "server/run/stream_sink.h"

namespace espalier {

// A server-streaming answer: the domain writes into it as a StreamSink, gRPC takes one message at a time. It lives until
// gRPC is done and the domain has let go, whichever is later. Thread-safe.
template <typename Message>
class StreamWriter final : public grpc::ServerWriteReactor<Message>, public StreamSink<Message> {
 public:
  // `room`: messages that may wait.
  static std::shared_ptr<StreamWriter> Make(size_t room) {
    std::shared_ptr<StreamWriter> writer(new StreamWriter(room));
    writer->self_ = writer;
    return writer;
  }

  size_t Room() const override {
    MutexLock lock(mutex_);
    return closed_ || queue_.size() >= room_ ? 0 : room_ - queue_.size();
  }

  bool Closed() const override {
    MutexLock lock(mutex_);
    return closed_;
  }

  void Write(Message message) override {
    MutexLock lock(mutex_);
    if (closed_) return;
    queue_.push_back(std::move(message));
    Continue();
  }

  void Finish(const absl::Status& status) override {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    status_ = ToGrpc(status);
    Continue();
  }

  void OnChange(std::function<void()> callback) override {
    MutexLock lock(mutex_);
    callback_ = std::move(callback);
  }

  void OnWriteDone(bool ok) override {
    std::function<void()> callback;
    {
      MutexLock lock(mutex_);
      writing_ = false;
      queue_.pop_front();
      if (!ok) Abandon();
      Continue();
      callback = callback_;
    }
    if (callback) callback();
  }

  void OnCancel() override {
    std::function<void()> callback;
    {
      MutexLock lock(mutex_);
      Abandon();
      Continue();
      callback = callback_;
    }
    if (callback) callback();
  }

  void OnDone() override {
    // Not under the lock: the last reference may go with it.
    const std::shared_ptr<StreamWriter> self = std::move(self_);
  }

 private:
  explicit StreamWriter(size_t room) : room_(room) {}

  // The client has gone: what waits is of no use to anybody.
  void Abandon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!closed_) status_ = grpc::Status::CANCELLED;
    closed_ = true;
    queue_.resize(writing_ ? 1 : 0);
  }

  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      writing_ = true;
      this->StartWrite(&queue_.front());
    } else if (closed_) {
      finished_ = true;
      grpc::ServerWriteReactor<Message>::Finish(status_);
    }
  }

  const size_t room_;
  std::shared_ptr<StreamWriter> self_;
  mutable Mutex mutex_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);  // the first one may be in flight
  std::function<void()> callback_ ABSL_GUARDED_BY(mutex_);
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace espalier
