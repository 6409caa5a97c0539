#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"

namespace espalier {

// Runs task(0) .. task(count - 1) on up to `threads` threads, the calling one among them, each taking the next that is
// free. After an error no new ones are begun; answers the error of the lowest task that failed. `after` runs on the
// calling thread between its tasks.
absl::Status RunParallel(
    size_t count, int threads, const std::function<absl::Status(size_t)>& task,
    const std::function<void()>& after = [] {});

// Hardware threads, at most 8: past that, reading a disk gains nothing.
int ReadingThreads();

}  // namespace espalier
