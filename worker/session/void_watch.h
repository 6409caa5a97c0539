#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "proto/support/mutex.h"
#include "worker/session/holding.h"

namespace espalier {

struct VoidWatchOptions {
  // For the executor to leave what it is in by itself.
  absl::Duration grace = absl::Seconds(1);
  // How often it looks again when the executor is still busy, but not with other ranks.
  absl::Duration interval = absl::Milliseconds(100);
  // Called when it is still waiting for other ranks then; need not return.
  std::function<void(const std::string& reason)> stuck;
};

// Watches the executor leave a void generation, on a thread of its own: a cancelled collective whose back end cannot
// abort would hold it until its deadline.
class VoidWatch {
 public:
  VoidWatch(Holding& holding, VoidWatchOptions options);
  ~VoidWatch();

  void Watch(const std::string& run, int64_t generation, const std::string& reason);

 private:
  struct Case {
    std::string run;
    int64_t generation = 0;
    std::string reason;
  };
  void Loop();
  void Observe(const Case& observed);

  Holding& holding_;
  const VoidWatchOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<Case> next_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace espalier
