#pragma once

#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "proto/support/mutex.h"

namespace espalier {

// A whole command and when its last part arrived, on the clock's Monotonic(): its deadline counts from there.
struct QueuedCommand {
  v1::Command command;
  absl::Duration received;
};

// Commands in the coordinator's order, from the thread that receives them to the one that executes them. Parts of one
// command are merged: repeated fields concatenated. Thread-safe.
class CommandQueue {
 public:
  explicit CommandQueue(const Clock& clock) : clock_(clock) {}

  void Push(v1::Command part);
  // A command of our own, whole: it does not meddle with one of which parts have come.
  void PushWhole(v1::Command command);
  // Forgets a command of which only some parts came: its stream broke.
  void DropPartial();
  // Waits for a command; nullopt once closed.
  std::optional<QueuedCommand> Pop();
  // What waits is dropped.
  void Close();

 private:
  const Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<v1::Command> partial_ ABSL_GUARDED_BY(mutex_);
  std::deque<QueuedCommand> queue_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace espalier
