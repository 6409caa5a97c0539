#include "worker/session/void_watch.h"

#include <utility>

namespace espalier {

VoidWatch::VoidWatch(Holding& holding, VoidWatchOptions options)
    : holding_(holding), options_(std::move(options)), thread_([this] { Loop(); }) {}

VoidWatch::~VoidWatch() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void VoidWatch::Watch(const std::string& run, int64_t generation, const std::string& reason) {
  MutexLock lock(mutex_);
  // A worker serves one run at a time: what is void last is what matters.
  next_ = Case{run, generation, reason};
  changed_.SignalAll();
}

void VoidWatch::Loop() {
  while (true) {
    Case observed;
    {
      MutexLock lock(mutex_);
      while (!next_ && !closed_) changed_.Wait(mutex_);
      if (closed_) return;
      observed = *std::exchange(next_, std::nullopt);
    }
    Observe(observed);
  }
}

void VoidWatch::Observe(const Case& observed) {
  absl::Duration patience = options_.grace;
  while (!holding_.WaitFree(observed.run, observed.generation, patience)) {
    // Every further call of a cancelled collective fails at once, so one that it is inside now was entered before.
    if (holding_.WaitingForRanks()) {
      options_.stuck(observed.reason);
      return;
    }
    patience = options_.interval;
    MutexLock lock(mutex_);
    if (closed_ || next_) return;
  }
}

}  // namespace espalier
