#include "proto/support/backoff.h"

#include <algorithm>

namespace espalier {

absl::Duration Backoff::Next() {
  next_ = next_ == absl::ZeroDuration() ? options_.initial : std::min(options_.max, next_ * options_.factor);
  return next_ * (1 + std::uniform_real_distribution<double>(0, options_.jitter)(random_));
}

}  // namespace espalier
