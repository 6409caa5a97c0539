#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "proto/support/mutex.h"
#include "worker/collective/collective.h"

namespace espalier {

// What this process holds and does, as the executor last said: for Hello, for heartbeats, and for those who must get the
// executor out of a wait. Thread-safe; nothing here waits for a command.
class Holding {
 public:
  // The executor's side.
  void Begin(const v1::Command& command);
  void End();
  void SetGroup(const std::string& run, int64_t generation, int rank, std::shared_ptr<Collective> collective);
  void SetMasks(int64_t version, uint64_t digest);
  void Clear();
  // Inside something that waits for other ranks and is not yet a call of a collective: forming the group.
  void SetForming(bool forming);

  // Sets what it holds, and the last command, in a Hello.
  void Describe(v1::Hello& hello) const;
  v1::Heartbeat Heartbeat() const;

  // Waits until the executor does no command of that generation, or an older one, of the run; at most `timeout`.
  bool WaitFree(const std::string& run, int64_t generation, absl::Duration timeout);
  // The executor is waiting for other ranks at this moment.
  bool WaitingForRanks() const;
  // Cancels the collective of that generation, or an older one, of the run.
  void Cancel(const std::string& run, int64_t generation, const absl::Status& cause);

  // The same without regard to run and generation.
  bool WaitIdle(absl::Duration timeout);
  void CancelAny(const absl::Status& cause);

 private:
  template <typename Condition>
  bool WaitUntil(absl::Duration timeout, Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool BusyLocked(const std::string& run, int64_t generation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WaitingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  // Of the command in execution.
  int64_t command_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string operation_ ABSL_GUARDED_BY(mutex_);
  std::string command_run_ ABSL_GUARDED_BY(mutex_);
  int64_t command_generation_ ABSL_GUARDED_BY(mutex_) = 0;
  bool executing_ ABSL_GUARDED_BY(mutex_) = false;
  bool forming_ ABSL_GUARDED_BY(mutex_) = false;
  // Held.
  std::string run_ ABSL_GUARDED_BY(mutex_);
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  int rank_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t mask_version_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t mask_digest_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_command_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Collective> collective_ ABSL_GUARDED_BY(mutex_);
};

// Name of the op of a command, e.g. UpdateMasks.
std::string OperationOf(const v1::Command& command);

}  // namespace espalier
