#include "worker/session/session_stream.h"

#include <utility>

#include "proto/support/grpc_status.h"

namespace espalier {

std::shared_ptr<SessionStream> SessionStream::Start(std::shared_ptr<grpc::Channel> channel, Receive receive,
                                                    Ended ended) {
  std::shared_ptr<SessionStream> stream(new SessionStream(std::move(channel), std::move(receive), std::move(ended)));
  stream->self_ = stream;
  stream->stub_->async()->Session(&stream->context_, stream.get());
  // Held for the writes that start outside of reactions; released when no write may start any more.
  stream->AddHold();
  stream->StartRead(&stream->incoming_);
  stream->StartCall();
  return stream;
}

SessionStream::SessionStream(std::shared_ptr<grpc::Channel> channel, Receive receive, Ended ended)
    : channel_(std::move(channel)),
      stub_(v1::WorkerService::NewStub(channel_)),
      receive_(std::move(receive)),
      ended_(std::move(ended)) {}

void SessionStream::Send(v1::WorkerMessage message) {
  MutexLock lock(mutex_);
  if (closed_ || finishing_) return;
  queue_.push_back(std::move(message));
  WriteNext();
}

void SessionStream::SendHeartbeat(const v1::Heartbeat& heartbeat) {
  MutexLock lock(mutex_);
  if (closed_ || finishing_) return;
  heartbeat_.emplace();
  *heartbeat_->mutable_heartbeat() = heartbeat;
  WriteNext();
}

void SessionStream::Finish() {
  MutexLock lock(mutex_);
  finishing_ = true;
  WriteNext();
}

void SessionStream::WriteNext() {
  if (writing_ || closed_ || finished_) return;
  if (heartbeat_) {
    outgoing_ = *std::move(heartbeat_);
    heartbeat_.reset();
  } else if (!queue_.empty()) {
    outgoing_ = std::move(queue_.front());
    queue_.pop_front();
  } else {
    if (finishing_) {
      finished_ = true;
      StartWritesDone();
    }
    return;
  }
  writing_ = true;
  StartWrite(&outgoing_);
}

void SessionStream::OnReadDone(bool ok) {
  if (ok) {
    receive_(incoming_);
    incoming_.Clear();
    StartRead(&incoming_);
    return;
  }
  MutexLock lock(mutex_);
  closed_ = true;
  queue_.clear();
  heartbeat_.reset();
  RemoveHold();
}

void SessionStream::OnWriteDone(bool ok) {
  MutexLock lock(mutex_);
  writing_ = false;
  // A failed write means that the call is over; the read ends too and says so.
  if (ok) WriteNext();
}

void SessionStream::OnDone(const grpc::Status& status) {
  // From here on the owner alone keeps the stream, and with it the channel. Were the last channel of the process dropped on
  // this thread, which polls gRPC's callback queue, gRPC 1.51 would take the queue down under the other pollers.
  const Ended ended = ended_;
  self_.reset();
  ended(FromGrpc(status));
}

}  // namespace espalier
