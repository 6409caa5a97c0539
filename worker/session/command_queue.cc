#include "worker/session/command_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"

namespace espalier {

void CommandQueue::Push(v1::Command part) {
  MutexLock lock(mutex_);
  if (closed_) return;
  if (partial_ && (partial_->command_id() != part.command_id() || partial_->op_case() != part.op_case())) {
    LogWarn("command_incomplete", {{"command", absl::StrCat(partial_->command_id())}});
    partial_.reset();
  }
  if (partial_) {
    partial_->MergeFrom(part);
  } else {
    partial_ = std::move(part);
  }
  if (!partial_->last_part()) return;
  queue_.push_back({*std::move(partial_), clock_.Monotonic()});
  partial_.reset();
  changed_.Signal();
}

void CommandQueue::PushWhole(v1::Command command) {
  MutexLock lock(mutex_);
  if (closed_) return;
  queue_.push_back({std::move(command), clock_.Monotonic()});
  changed_.Signal();
}

void CommandQueue::DropPartial() {
  MutexLock lock(mutex_);
  partial_.reset();
}

std::optional<QueuedCommand> CommandQueue::Pop() {
  MutexLock lock(mutex_);
  while (queue_.empty() && !closed_) changed_.Wait(mutex_);
  if (closed_) return std::nullopt;
  QueuedCommand command = std::move(queue_.front());
  queue_.pop_front();
  return command;
}

void CommandQueue::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  queue_.clear();
  changed_.SignalAll();
}

}  // namespace espalier
