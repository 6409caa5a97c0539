#pragma once

#include "proto/support/clock.h"
#include "proto/support/mutex.h"

namespace espalier::testing {

// Stands still until told to move. Thread-safe.
class FakeClock final : public Clock {
 public:
  absl::Duration Monotonic() const override {
    MutexLock lock(mutex_);
    return monotonic_;
  }
  absl::Time Wall() const override {
    MutexLock lock(mutex_);
    return wall_;
  }
  void Advance(absl::Duration by) {
    MutexLock lock(mutex_);
    monotonic_ += by;
    wall_ += by;
  }
  // The wall clock alone, as when somebody sets it.
  void JumpWall(absl::Duration by) {
    MutexLock lock(mutex_);
    wall_ += by;
  }

 private:
  mutable Mutex mutex_;
  absl::Duration monotonic_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1000);
  absl::Time wall_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'800'000'000);
};

}  // namespace espalier::testing
