#include "worker/session/generation_gate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier {

absl::Status GenerationGate::Admit(const v1::Command& command) {
  if (command.has_leave_group() || command.has_discard_checkpoint() || command.run().empty()) return absl::OkStatus();
  MutexLock lock(mutex_);
  Seen& seen = runs_[command.run()];
  const int64_t given = command.generation();
  if (given < seen.highest || given <= seen.voided) {
    return MakeError(
        v1::ERROR_REASON_GENERATION_STALE,
        absl::StrCat("generation ", given, " of ", command.run(), given <= seen.voided ? " is void" : " is old",
                     "; the worker has seen ", std::max(seen.highest, seen.voided)),
        {{"seen", absl::StrCat(std::max(seen.highest, seen.voided))}, {"given", absl::StrCat(given)}});
  }
  seen.highest = given;
  return absl::OkStatus();
}

void GenerationGate::Void(const std::string& run, int64_t generation) {
  MutexLock lock(mutex_);
  Seen& seen = runs_[run];
  seen.voided = std::max(seen.voided, generation);
}

}  // namespace espalier
