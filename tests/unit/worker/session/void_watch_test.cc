#include "worker/session/void_watch.h"

#include <thread>

#include "gtest/gtest.h"
#include "proto/support/mutex.h"
#include "tests/support/thread_collective.h"

namespace espalier {
namespace {

v1::Command Update(int64_t generation) {
  v1::Command command;
  command.set_command_id(1);
  command.set_run("runs/r");
  command.set_generation(generation);
  command.mutable_update_masks();
  return command;
}

// Counts calls of `stuck` and lets a test wait for one.
class Calls {
 public:
  void Note(const std::string& reason) {
    MutexLock lock(mutex_);
    reasons_.push_back(reason);
    changed_.SignalAll();
  }
  std::string Wait() {
    MutexLock lock(mutex_);
    while (reasons_.empty()) changed_.Wait(mutex_);
    return reasons_.front();
  }
  size_t count() {
    MutexLock lock(mutex_);
    return reasons_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> reasons_ ABSL_GUARDED_BY(mutex_);
};

VoidWatchOptions Quick(Calls& calls) {
  return {.grace = absl::Milliseconds(20),
          .interval = absl::Milliseconds(5),
          .stuck = [&calls](const std::string& reason) { calls.Note(reason); }};
}

TEST(VoidWatchTest, ReportsAnExecutorThatWaitsForOthers) {
  Holding holding;
  Calls calls;
  VoidWatch watch(holding, Quick(calls));
  holding.Begin(Update(2));
  holding.SetForming(true);
  watch.Watch("runs/r", 2, "rank 1 is lost");
  EXPECT_EQ(calls.Wait(), "rank 1 is lost");
}

TEST(VoidWatchTest, LeavesAnExecutorAloneThatComesBack) {
  Holding holding;
  Calls calls;
  {
    VoidWatch watch(holding, Quick(calls));
    holding.Begin(Update(2));
    watch.Watch("runs/r", 2, "void");
    holding.End();
    // What is newer is none of its business.
    holding.Begin(Update(3));
    holding.SetForming(true);
    watch.Watch("runs/r", 2, "void");
    EXPECT_TRUE(holding.WaitFree("runs/r", 2, absl::Seconds(10)));
  }
  EXPECT_EQ(calls.count(), 0U);
}

TEST(VoidWatchTest, WaitsForOneThatWorksAlone) {
  Holding holding;
  Calls calls;
  VoidWatch watch(holding, Quick(calls));
  holding.Begin(Update(2));
  watch.Watch("runs/r", 2, "void");
  // Reading a file takes longer than the grace, and then it enters a group.
  EXPECT_FALSE(holding.WaitFree("runs/r", 2, absl::Milliseconds(60)));
  EXPECT_EQ(calls.count(), 0U);
  holding.SetForming(true);
  EXPECT_EQ(calls.Wait(), "void");
}

}  // namespace
}  // namespace espalier
