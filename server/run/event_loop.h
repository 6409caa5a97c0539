#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "proto/support/clock.h"
#include "proto/support/mutex.h"

namespace espalier {

// The one place where the state of runs and workers is touched: closures run one after another, on the thread of Start
// or on the caller's of RunUntilIdle. Time comes from the injected clock, so that tests move it by hand.
class EventLoop {
 public:
  using TimerId = int64_t;

  explicit EventLoop(const Clock& clock) : clock_(clock) {}
  ~EventLoop() { Stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs `work` after all that was posted before. Thread-safe. After Stop it is dropped.
  void Post(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `work` once `delay` has passed on the clock. On the loop only.
  TimerId After(absl::Duration delay, std::function<void()> work);
  // A timer that fired already, or 0, is ignored. On the loop only.
  void Cancel(TimerId id);

  // By hand: runs what is posted and due until nothing is left.
  void RunUntilIdle();

  // A thread of its own. Stop runs what was posted before it, and joins.
  void Start();
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Duration Now() const { return clock_.Monotonic(); }
  const Clock& clock() const { return clock_; }

 private:
  bool RunPosted() ABSL_LOCKS_EXCLUDED(mutex_);
  bool RunDue();
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  const Clock& clock_;
  std::map<std::pair<absl::Duration, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, absl::Duration> due_;
  TimerId next_timer_ = 1;

  Mutex mutex_;
  CondVar wake_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace espalier
