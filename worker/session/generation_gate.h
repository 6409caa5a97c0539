#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/support/mutex.h"

namespace espalier {

// Which commands are too old. Generations count within a run. Thread-safe.
class GenerationGate {
 public:
  // GENERATION_STALE (seen, given) when the command's generation is lower than the highest seen of its run, or void; what
  // only cleans up (LeaveGroup, DiscardCheckpoint) is let through. Notes the generation as seen.
  absl::Status Admit(const v1::Command& command);

  // The generation, and every one before it, is void.
  void Void(const std::string& run, int64_t generation);

 private:
  struct Seen {
    int64_t highest = 0;
    int64_t voided = 0;
  };
  Mutex mutex_;
  std::map<std::string, Seen> runs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier
