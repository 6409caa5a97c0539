#pragma once

#include "absl/time/time.h"

namespace espalier {

// Time as our code sees it. Injected, so that leases and time-outs are tested without waiting. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Never jumps and never goes back; only differences mean anything. Leases and deadlines use this one.
  virtual absl::Duration Monotonic() const = 0;
  // For people and journals only; may jump.
  virtual absl::Time Wall() const = 0;
};

// The machine's clocks. Never destroyed.
const Clock& SystemClock();

}  // namespace espalier
