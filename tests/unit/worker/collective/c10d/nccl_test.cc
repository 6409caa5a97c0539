// Groups over NCCL. NCCL takes one rank a GPU: with fewer than two GPUs only the refusals are tested, and the rest is skipped.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "proto/support/clock.h"
#include "proto/support/errors.h"
#include "tests/unit/worker/collective/c10d/ranks.h"
#include "tests/unit/worker/collective/collective_contract.h"
#include "worker/collective/c10d/join.h"
#include "worker/device/cuda/cuda_accelerator.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

// Asked in a process of its own: CUDA does not survive a fork.
int CountGpus() {
  static const int count = [] {
    const pid_t child = fork();
    if (child == 0) _exit(CountCudaDevices().value_or(0));
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  }();
  return count;
}

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CountGpus() < 2) GTEST_SKIP() << "NCCL needs a GPU for each of two ranks; here are " << CountGpus();
  }
};

std::unique_ptr<Collective> JoinedOn(JoinOptions options) {
  options.gpu = options.rank;
  auto group = JoinNccl(options);
  EXPECT_OK(group);
  return group.ok() ? *std::move(group) : nullptr;
}

TEST_F(NcclTest, KeepsTheContract) {
  const int world_size = std::min(CountGpus(), 4);
  Ranks ranks(world_size, [](JoinOptions options) {
    for (const bool compare_tags : {false, true}) {
      options.compare_tags = compare_tags;
      ++options.generation;
      const std::unique_ptr<Collective> group = JoinedOn(options);
      ASSERT_NE(group, nullptr);
      ExpectContract(*group);
      ASSERT_OK(group->Barrier({"end", 1}));
    }
  });
  for (int rank = 0; rank < world_size; ++rank) EXPECT_EQ(ranks.Wait(rank), 0);
}

TEST_F(NcclTest, AStoppedPeerIsWaitedForUntilTheDeadline) {
  Ranks ranks(2, [](const JoinOptions& options) {
    const std::unique_ptr<Collective> group = JoinedOn(options);
    ASSERT_NE(group, nullptr);
    if (options.rank == 1) {
      raise(SIGSTOP);
      return;
    }
    const absl::Duration start = SystemClock().Monotonic();
    group->SetDeadline(absl::Milliseconds(500));
    int64_t value = 1;
    EXPECT_THAT(group->AllReduce({"step", 4}, absl::MakeSpan(&value, 1), ReduceOp::kSum),
                HasReason(v1::ERROR_REASON_COLLECTIVE_TIMEOUT, HasSubstr("step")));
    EXPECT_LT(SystemClock().Monotonic() - start, absl::Seconds(10));
  });
  ranks.WaitStopped(1);
  EXPECT_EQ(ranks.Wait(0), 0);
}

// What Gloo cannot do.
TEST_F(NcclTest, CancelWakesARankOutOfACall) {
  Ranks ranks(2, [](const JoinOptions& options) {
    const std::unique_ptr<Collective> group = JoinedOn(options);
    ASSERT_NE(group, nullptr);
    if (options.rank == 1) {
      raise(SIGSTOP);
      return;
    }
    std::thread canceller([&group] {
      while (!group->in_call()) std::this_thread::yield();
      group->Cancel(MakeError(v1::ERROR_REASON_CANCELLED, "enough"));
    });
    int64_t value = 1;
    EXPECT_THAT(group->AllReduce({"step", 4}, absl::MakeSpan(&value, 1), ReduceOp::kSum),
                HasReason(v1::ERROR_REASON_CANCELLED, HasSubstr("enough")));
    canceller.join();
  });
  ranks.WaitStopped(1);
  EXPECT_EQ(ranks.Wait(0), 0);
}

// Before any GPU is touched.
TEST(NcclRefusalTest, NamesTheRankThatDoesNotJoin) {
  Ranks ranks(2, [](JoinOptions options) {
    if (options.rank == 1) return;
    options.timeout = absl::Seconds(1);
    const auto group = JoinNccl(options);
    EXPECT_THAT(group, HasReason(v1::ERROR_REASON_COLLECTIVE_TIMEOUT, HasSubstr("without rank 1")));
    EXPECT_EQ(MetadataOf(group.status(), "ranks"), "1");
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

TEST(NcclRefusalTest, SaysThatThereIsNoGpu) {
  Ranks ranks(1, [](const JoinOptions& options) {
    ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
    EXPECT_THAT(JoinNccl(options), HasReason(v1::ERROR_REASON_WORKER_LOST, HasSubstr("GPU")));
  });
  EXPECT_EQ(ranks.Wait(0), 0);
}

}  // namespace
}  // namespace espalier::testing
