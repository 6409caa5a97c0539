#include "client/lib/cancellation.h"

#include "absl/time/clock.h"

namespace espalier {

void Cancellation::Cancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
  changed_.SignalAll();
}

bool Cancellation::cancelled() const {
  const MutexLock lock(mutex_);
  return cancelled_;
}

bool Cancellation::Sleep(absl::Duration duration) {
  const absl::Time end = absl::Now() + duration;
  const MutexLock lock(mutex_);
  while (!cancelled_ && absl::Now() < end) changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(end - absl::Now()));
  return !cancelled_;
}

Cancellation::Scope::Scope(Cancellation* cancellation, grpc::ClientContext& context) : cancellation_(cancellation) {
  if (cancellation_ == nullptr) return;
  const MutexLock lock(cancellation_->mutex_);
  cancellation_->context_ = &context;
  if (cancellation_->cancelled_) context.TryCancel();
}

Cancellation::Scope::~Scope() {
  if (cancellation_ == nullptr) return;
  const MutexLock lock(cancellation_->mutex_);
  cancellation_->context_ = nullptr;
}

}  // namespace espalier
