#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/support/mutex.h"
#include "worker/collective/collective.h"

namespace espalier {

// What every back end keeps about its calls: how many, what was sent, and the first failure, which poisons the group.
// Thread-safe.
class CallState {
 public:
  // Counts the call and says that the executor is inside one. Fails with the first cause once poisoned.
  absl::Status Enter();

  // Ends a call of Enter: a failure poisons, a success adds `sent` payload bytes. Answers the first cause when the group
  // was poisoned meanwhile.
  absl::Status Leave(const absl::Status& result, int64_t sent);

  // The first cause stays. An OK status becomes GENERATION_STALE.
  void Poison(const absl::Status& cause);

  absl::Status cause() const;
  int64_t sequence() const { return sequence_; }
  bool in_call() const { return in_call_; }
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  std::atomic<int64_t> sequence_ = 0;
  std::atomic<bool> in_call_ = false;
  std::atomic<int64_t> bytes_sent_ = 0;
  mutable Mutex mutex_;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
};

// INVARIANT with the operation: a buffer that a call was given does not have the size the contract asks for.
absl::Status BadBuffer(const CollectiveTag& tag, absl::string_view what, int64_t want, int64_t got);

// COLLECTIVE_TIMEOUT with the operation and, where they are known, the missing ranks ("1,3").
absl::Status CollectiveTimeout(const CollectiveTag& tag, int64_t sequence, absl::Duration deadline,
                               absl::string_view missing_ranks);

}  // namespace espalier
