#include "worker/session/holding.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace espalier {

std::string OperationOf(const v1::Command& command) {
  const google::protobuf::OneofDescriptor* op = v1::Command::descriptor()->FindOneofByName("op");
  const google::protobuf::FieldDescriptor* field = command.GetReflection()->GetOneofFieldDescriptor(command, op);
  return field == nullptr ? "" : field->message_type()->name();
}

void Holding::Begin(const v1::Command& command) {
  const std::string operation = OperationOf(command);
  MutexLock lock(mutex_);
  executing_ = true;
  command_id_ = command.command_id();
  operation_ = operation;
  command_run_ = command.run();
  command_generation_ = command.generation();
}

void Holding::End() {
  MutexLock lock(mutex_);
  last_command_id_ = std::max(last_command_id_, command_id_);
  executing_ = forming_ = false;
  command_id_ = command_generation_ = 0;
  operation_.clear();
  command_run_.clear();
  changed_.SignalAll();
}

void Holding::SetGroup(const std::string& run, int64_t generation, int rank, std::shared_ptr<Collective> collective) {
  MutexLock lock(mutex_);
  run_ = run;
  generation_ = generation;
  rank_ = rank;
  collective_ = std::move(collective);
}

void Holding::SetMasks(int64_t version, uint64_t digest) {
  MutexLock lock(mutex_);
  mask_version_ = version;
  mask_digest_ = digest;
}

void Holding::Clear() {
  std::shared_ptr<Collective> released;
  MutexLock lock(mutex_);
  released.swap(collective_);
  run_.clear();
  generation_ = mask_version_ = 0;
  mask_digest_ = 0;
  rank_ = 0;
}

void Holding::SetForming(bool forming) {
  MutexLock lock(mutex_);
  forming_ = forming;
}

void Holding::Describe(v1::Hello& hello) const {
  MutexLock lock(mutex_);
  hello.set_run(run_);
  hello.set_generation(generation_);
  hello.set_mask_version(mask_version_);
  hello.set_mask_digest(mask_digest_);
  hello.set_last_command_id(last_command_id_);
  hello.set_rank(rank_);
}

v1::Heartbeat Holding::Heartbeat() const {
  v1::Heartbeat beat;
  MutexLock lock(mutex_);
  beat.set_command_id(command_id_);
  beat.set_operation(operation_);
  beat.set_generation(executing_ ? command_generation_ : generation_);
  if (collective_ != nullptr) beat.set_collective_sequence(collective_->sequence());
  beat.set_in_collective(WaitingLocked());
  return beat;
}

bool Holding::BusyLocked(const std::string& run, int64_t generation) const {
  return executing_ && command_run_ == run && command_generation_ <= generation;
}

bool Holding::WaitingLocked() const {
  return forming_ || (collective_ != nullptr && collective_->in_call());
}

template <typename Condition>
bool Holding::WaitUntil(absl::Duration timeout, Condition condition) {
  const absl::Time until = absl::Now() + timeout;
  while (!condition()) {
    const absl::Duration left = until - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(left));
  }
  return true;
}

bool Holding::WaitFree(const std::string& run, int64_t generation, absl::Duration timeout) {
  MutexLock lock(mutex_);
  return WaitUntil(timeout, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !BusyLocked(run, generation); });
}

bool Holding::WaitIdle(absl::Duration timeout) {
  MutexLock lock(mutex_);
  return WaitUntil(timeout, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !executing_; });
}

bool Holding::WaitingForRanks() const {
  MutexLock lock(mutex_);
  return WaitingLocked();
}

void Holding::Cancel(const std::string& run, int64_t generation, const absl::Status& cause) {
  std::shared_ptr<Collective> collective;
  {
    MutexLock lock(mutex_);
    if (run_ != run || generation_ > generation) return;
    collective = collective_;
  }
  if (collective != nullptr) collective->Cancel(cause);
}

void Holding::CancelAny(const absl::Status& cause) {
  std::shared_ptr<Collective> collective;
  {
    MutexLock lock(mutex_);
    collective = collective_;
  }
  if (collective != nullptr) collective->Cancel(cause);
}

}  // namespace espalier
