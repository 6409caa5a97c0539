#include "server/api/worker_api.h"

#include <deque>
#include <memory>
#include <utility>

#include "proto/support/grpc_status.h"
#include "proto/support/mutex.h"
#include "server/fleet/session_link.h"

namespace espalier {
namespace {

// One Session call; the registry's link at the same time. It lives until gRPC is done and the registry has let go.
class SessionReactor final : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
                             public SessionLink {
 public:
  static std::shared_ptr<SessionReactor> Make(EventLoop& loop, Coordinator& coordinator) {
    std::shared_ptr<SessionReactor> reactor(new SessionReactor(loop, coordinator));
    reactor->self_ = reactor;
    return reactor;
  }

  void Open() {
    loop_.Post([this, self = self_] { id_ = coordinator_.registry().Open(self); });
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      loop_.Post([this, self = self_] { coordinator_.registry().Closed(id_); });
      Close(absl::OkStatus());
      return;
    }
    loop_.Post([this, self = self_, message = std::move(incoming_)] { coordinator_.registry().Receive(id_, message); });
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    queue_.pop_front();
    if (!ok) queue_.clear();
    Continue();
  }

  void OnCancel() override { Close(absl::CancelledError()); }

  void OnDone() override { const std::shared_ptr<SessionReactor> self = std::move(self_); }

  void Send(const v1::CoordinatorMessage& message) override {
    MutexLock lock(mutex_);
    if (closed_) return;
    queue_.push_back(message);
    Continue();
  }

  void Close(const absl::Status& status) override {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    status_ = ToGrpc(status);
    Continue();
  }

 private:
  SessionReactor(EventLoop& loop, Coordinator& coordinator) : loop_(loop), coordinator_(coordinator) {}

  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      writing_ = true;
      StartWrite(&queue_.front());
    } else if (closed_) {
      finished_ = true;
      Finish(status_);
    }
  }

  EventLoop& loop_;
  Coordinator& coordinator_;
  std::shared_ptr<SessionReactor> self_;
  v1::WorkerMessage incoming_;
  WorkerRegistry::SessionId id_ = 0;  // on the loop only

  Mutex mutex_;
  std::deque<v1::CoordinatorMessage> queue_ ABSL_GUARDED_BY(mutex_);  // the first one may be in flight
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// One UploadParameter call. Reads the next chunk only when the relay has room for it.
class UploadReactor final : public grpc::ServerReadReactor<v1::UploadParameterRequest> {
 public:
  static std::shared_ptr<UploadReactor> Make(EventLoop& loop, Coordinator& coordinator) {
    std::shared_ptr<UploadReactor> reactor(new UploadReactor(loop, coordinator));
    reactor->self_ = reactor;
    return reactor;
  }

  void Open() { StartRead(&incoming_); }

  void OnReadDone(bool ok) override {
    if (relay_ == nullptr) {
      if (!ok) return End(MissingHeader());
      loop_.Post([this, self = self_] { Begin(coordinator_.FindUpload(incoming_)); });
      return;
    }
    if (!ok) {
      // The end of the stream, or of the connection: the sizes tell which.
      return End(relay_->Complete());
    }
    absl::Status status = relay_->Accept(std::move(*incoming_.mutable_chunk()));
    if (!status.ok()) return End(status);
    ReadOn();
  }

  void OnDone() override { const std::shared_ptr<UploadReactor> self = std::move(self_); }

 private:
  UploadReactor(EventLoop& loop, Coordinator& coordinator) : loop_(loop), coordinator_(coordinator) {}

  static absl::Status MissingHeader() { return absl::InvalidArgumentError("the upload ended before its header"); }

  void Begin(absl::StatusOr<std::shared_ptr<UploadRelay>> relay) {
    if (!relay.ok()) return End(relay.status());
    const absl::Status status = (*relay)->Begin(incoming_.header());
    if (!status.ok()) return End(status);
    relay_ = *std::move(relay);
    ReadOn();
  }

  void ReadOn() {
    relay_->WhenRoom([this, self = self_] {
      incoming_.Clear();
      StartRead(&incoming_);
    });
  }

  void End(const absl::Status& status) { Finish(ToGrpc(status)); }

  EventLoop& loop_;
  Coordinator& coordinator_;
  std::shared_ptr<UploadReactor> self_;
  // Touched by one callback at a time: a read is started only after the last one was dealt with.
  v1::UploadParameterRequest incoming_;
  std::shared_ptr<UploadRelay> relay_;
};

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* WorkerApi::Session(grpc::CallbackServerContext*) {
  const std::shared_ptr<SessionReactor> reactor = SessionReactor::Make(loop_, coordinator_);
  reactor->Open();
  return reactor.get();
}

grpc::ServerReadReactor<v1::UploadParameterRequest>* WorkerApi::UploadParameter(grpc::CallbackServerContext*,
                                                                                v1::UploadParameterResponse*) {
  const std::shared_ptr<UploadReactor> reactor = UploadReactor::Make(loop_, coordinator_);
  reactor->Open();
  return reactor.get();
}

}  // namespace espalier
