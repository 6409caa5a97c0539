#include "worker/checkpoint/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "proto/support/mutex.h"

namespace espalier {

absl::Status RunParallel(size_t count, int threads, const std::function<absl::Status(size_t)>& task,
                         const std::function<void()>& after) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  Mutex mutex;
  size_t first = count;  // guarded by mutex
  absl::Status error;    // guarded by mutex
  const auto work = [&](const std::function<void()>& between) {
    for (size_t i = next++; i < count && !failed; i = next++) {
      absl::Status status = task(i);
      if (!status.ok()) {
        failed = true;
        MutexLock lock(mutex);
        if (i < first) {
          first = i;
          error = std::move(status);
        }
      }
      between();
    }
  };
  std::vector<std::thread> helpers;
  for (size_t t = 1; t < std::min(count, static_cast<size_t>(std::max(threads, 1))); ++t) {
    helpers.emplace_back([&] { work([] {}); });
  }
  work(after);
  for (std::thread& helper : helpers) helper.join();
  return error;
}

int ReadingThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
}

}  // namespace espalier
