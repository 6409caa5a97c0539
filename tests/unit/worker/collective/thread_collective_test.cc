#include "tests/support/thread_collective.h"

#include <thread>

#include "proto/support/errors.h"
#include "tests/unit/worker/collective/collective_contract.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

class ThreadGroupTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadGroupTest, KeepsTheContract) {
  ThreadGroup group(GetParam());
  group.Run([](Collective& rank) { ExpectContract(rank); });
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, ThreadGroupTest, ::testing::Values(1, 2, 3, 8));

// known-bugs 34
TEST(ThreadGroup, NamesTheRankThatDidNotCome) {
  ThreadGroup group(3);
  group.Run([](Collective& rank) {
    rank.SetDeadline(absl::Milliseconds(50));
    if (rank.rank() == 1) return;
    const absl::Status late = rank.Barrier({"save", 5});
    EXPECT_THAT(late, HasReason(v1::ERROR_REASON_COLLECTIVE_TIMEOUT, HasSubstr("save")));
    EXPECT_EQ(MetadataOf(late, "ranks"), "1");
  });
  // known-bugs 37: who comes late is told, and never falls out of step.
  EXPECT_THAT(group.rank(1).Barrier({"save", 5}), HasReason(v1::ERROR_REASON_COLLECTIVE_TIMEOUT));
}

// known-bugs 24
TEST(ThreadGroup, ComparesTags) {
  ThreadGroup group(2);
  group.Run([](Collective& rank) {
    const char* operation = rank.rank() == 0 ? "save" : "report";
    EXPECT_THAT(rank.Barrier({operation, 1}), HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("report")));
  });
}

TEST(ThreadGroup, CancelAndLossReleaseWhoWaits) {
  for (const bool lose : {false, true}) {
    ThreadGroup group(2);
    absl::Status seen;
    std::thread waiting([&] { seen = group.rank(0).Barrier({"select", 1}); });
    while (!group.rank(0).in_call()) std::this_thread::yield();
    if (lose) {
      group.Lose(1);
    } else {
      group.rank(0).Cancel(absl::OkStatus());
    }
    waiting.join();
    EXPECT_THAT(seen, HasReason(lose ? v1::ERROR_REASON_WORKER_LOST : v1::ERROR_REASON_GENERATION_STALE));
    EXPECT_THAT(group.rank(1).Barrier({"select", 1}),
                HasReason(lose ? v1::ERROR_REASON_WORKER_LOST : v1::ERROR_REASON_GENERATION_STALE));
  }
}

}  // namespace
}  // namespace espalier::testing
