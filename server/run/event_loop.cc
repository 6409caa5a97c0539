#include "server/run/event_loop.h"

#include <algorithm>
#include <utility>

namespace espalier {
namespace {

// The clock may be one that nobody can wait on; this bounds how long a timer can be late when it is.
constexpr absl::Duration kLongestWait = absl::Seconds(1);

}  // namespace

void EventLoop::Post(std::function<void()> work) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  posted_.push_back(std::move(work));
  wake_.Signal();
}

EventLoop::TimerId EventLoop::After(absl::Duration delay, std::function<void()> work) {
  const TimerId id = next_timer_++;
  const absl::Duration due = Now() + std::max(delay, absl::ZeroDuration());
  timers_.emplace(std::pair(due, id), std::move(work));
  due_.emplace(id, due);
  return id;
}

void EventLoop::Cancel(TimerId id) {
  const auto it = due_.find(id);
  if (it == due_.end()) return;
  timers_.erase({it->second, id});
  due_.erase(it);
}

bool EventLoop::RunPosted() {
  std::vector<std::function<void()>> work;
  {
    MutexLock lock(mutex_);
    work.swap(posted_);
  }
  for (auto& each : work) each();
  return !work.empty();
}

bool EventLoop::RunDue() {
  if (timers_.empty() || timers_.begin()->first.first > Now()) return false;
  const auto node = timers_.extract(timers_.begin());
  due_.erase(node.key().second);
  node.mapped()();
  return true;
}

void EventLoop::RunUntilIdle() {
  while (RunPosted() || RunDue()) {
  }
}

void EventLoop::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void EventLoop::Loop() {
  while (true) {
    RunUntilIdle();
    const absl::Duration wait =
        timers_.empty() ? kLongestWait : std::min(kLongestWait, timers_.begin()->first.first - Now());
    MutexLock lock(mutex_);
    if (!posted_.empty()) continue;
    if (stopping_) return;
    if (wait > absl::ZeroDuration()) wake_.WaitFor(mutex_, absl::ToChronoNanoseconds(wait));
  }
}

void EventLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.Signal();
  }
  if (thread_.joinable()) thread_.join();
  MutexLock lock(mutex_);
  stopped_ = true;
  posted_.clear();
}

}  // namespace espalier
