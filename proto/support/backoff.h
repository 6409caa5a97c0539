#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace espalier {

struct BackoffOptions {
  absl::Duration initial = absl::Milliseconds(100);
  double factor = 1.5;
  absl::Duration max = absl::Seconds(10);
  // Each delay is stretched by up to this share of itself, at random.
  double jitter = 0.2;
};

// Delays between attempts: initial, initial * factor, ... up to max, plus jitter. Not thread-safe.
class Backoff {
 public:
  Backoff(const BackoffOptions& options, uint64_t seed) : options_(options), random_(seed) {}
  absl::Duration Next();
  void Reset() { next_ = absl::ZeroDuration(); }

 private:
  const BackoffOptions options_;
  std::mt19937_64 random_;
  absl::Duration next_ = absl::ZeroDuration();
};

}  // namespace espalier
