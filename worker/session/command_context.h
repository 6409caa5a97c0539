#pragma once

#include <functional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/support/clock.h"

namespace espalier {

// Takes (phase, done, total, unit) of the command in execution; cheap, called as often as one likes.
using ProgressFn = std::function<void(absl::string_view, int64_t, int64_t, absl::string_view)>;

// What an op is given beside the state.
struct CommandContext {
  const v1::Command& command;
  // On the clock's Monotonic().
  absl::Duration deadline;
  const Clock& clock;
  ProgressFn progress;

  absl::Duration Left() const { return deadline - clock.Monotonic(); }
};

}  // namespace espalier
