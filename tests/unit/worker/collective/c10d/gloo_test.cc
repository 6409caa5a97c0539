#include <signal.h>
#include <unistd.h>

#include <vector>

#include "proto/support/clock.h"
#include "proto/support/errors.h"
#include "tests/unit/worker/collective/c10d/ranks.h"
#include "tests/unit/worker/collective/collective_contract.h"
#include "worker/collective/c10d/join.h"
#include "worker/collective/c10d/rendezvous_store.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class GlooTest : public ::testing::TestWithParam<int> {};

TEST_P(GlooTest, KeepsTheContract) {
  Ranks ranks(GetParam(), [](JoinOptions options) {
    for (const bool compare_tags : {false, true}) {
      options.compare_tags = compare_tags;
      ++options.generation;
      const auto group = JoinGloo(options);
      ASSERT_OK(group);
      ExpectContract(**group);
      ASSERT_OK((*group)->Barrier({"end", 1}));
    }
  });
  for (int rank = 0; rank < GetParam(); ++rank) EXPECT_EQ(ranks.Wait(rank), 0);
}

// Bytes arrive as they were sent, also when they are more than any buffer between two processes.
TEST_P(GlooTest, GathersLargeContributions) {
  Ranks ranks(GetParam(), [](const JoinOptions& options) {
    const auto joined = JoinGloo(options);
    ASSERT_OK(joined);
    Collective& group = **joined;
    const auto byte_at = [](int rank, size_t i) { return static_cast<uint8_t>(i * 31 + static_cast<size_t>(rank)); };
    std::vector<int64_t> sizes;
    for (int r = 0; r < options.world_size; ++r) sizes.push_back(30'000'001 + 1000 * r);
    std::vector<uint8_t> mine(static_cast<size_t>(sizes[static_cast<size_t>(options.rank)]));
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = byte_at(options.rank, i);
    std::vector<uint8_t> all;
    if (options.rank == 0) all.resize(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
    ASSERT_OK(group.GatherTo({"gather", 1}, 0, BytesOf(mine), sizes, BytesOf(all)));
    size_t at = 0;
    int64_t wrong = 0;
    for (int r = 0; options.rank == 0 && r < options.world_size; ++r) {
      for (size_t i = 0; i < static_cast<size_t>(sizes[static_cast<size_t>(r)]); ++i)
        wrong += all[at++] != byte_at(r, i);
    }
    EXPECT_EQ(wrong, 0);
  });
  for (int rank = 0; rank < GetParam(); ++rank) EXPECT_EQ(ranks.Wait(rank), 0);
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, GlooTest, ::testing::Values(2, 3));

// known-bugs 35: the others are told at once when a process dies.
TEST(Gloo, AKilledPeerBreaksTheGroup) {
  Ranks ranks(3, [](const JoinOptions& options) {
    const auto group = JoinGloo(options);
    ASSERT_OK(group);
    if (options.rank == 2) raise(SIGKILL);
    const absl::Duration start = SystemClock().Monotonic();
    int64_t value = 1;
    const absl::Status status = (*group)->AllReduce({"select", 9}, absl::MakeSpan(&value, 1), ReduceOp::kSum);
    EXPECT_THAT(status, HasReason(v1::ERROR_REASON_WORKER_LOST, HasSubstr("select")));
    EXPECT_EQ(MetadataOf(status, "operation"), "select");
    // Nothing of Gloo's sources, and what a terminal shows.
    EXPECT_THAT(std::string(status.message()), AllOf(Not(HasSubstr(".cc:")), Not(MatchesRegex(".*[^ -~].*"))));
    EXPECT_LT(SystemClock().Monotonic() - start, absl::Seconds(15));
    // Poisoned: the same cause, without waiting.
    EXPECT_EQ((*group)->Barrier({"save", 10}), status);
  });
  EXPECT_EQ(ranks.Wait(2), -SIGKILL);
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

// Gloo's writes to a peer that has gone raise this signal, unless its own thread was the first to see it.
TEST(Gloo, ABrokenPipeDoesNotEndTheProcess) {
  signal(SIGPIPE, SIG_DFL);  // whatever the caller of this test has set
  Ranks ranks(1, [](const JoinOptions& options) {
    ASSERT_OK(JoinGloo(options));
    raise(SIGPIPE);
  });
  EXPECT_EQ(ranks.Wait(0), 0);
}

// A stopped process keeps its connections: only the deadline tells. Every kind of call has one.
TEST(Gloo, AStoppedPeerIsWaitedForUntilTheDeadline) {
  enum Call { kReduce, kAllGather, kReceive, kSend, kBroadcast, kBarrier };
  for (const Call call : {kReduce, kAllGather, kReceive, kSend, kBroadcast, kBarrier}) {
    Ranks ranks(2, [call](const JoinOptions& options) {
      const auto joined = JoinGloo(options);
      ASSERT_OK(joined);
      Collective& group = **joined;
      if (options.rank == 1) {
        raise(SIGSTOP);
        return;
      }
      const absl::Duration start = SystemClock().Monotonic();
      group.SetDeadline(absl::Milliseconds(500));
      // More than the kernel takes for a peer that does not read.
      std::vector<int64_t> mine(8 << 20);
      std::vector<int64_t> all(16 << 20);
      const auto bytes = static_cast<int64_t>(mine.size() * 8);
      const CollectiveTag tag{"step", 4};
      absl::Status status;
      if (call == kReduce) status = group.AllReduce(tag, absl::MakeSpan(mine), ReduceOp::kSum);
      if (call == kAllGather) status = group.AllGather(tag, BytesOf(mine), BytesOf(all));
      if (call == kReceive) status = group.GatherTo(tag, 0, BytesOf(mine), {bytes, bytes}, BytesOf(all));
      if (call == kSend) status = group.GatherTo(tag, 1, BytesOf(mine), {bytes, bytes}, {});
      if (call == kBroadcast) status = group.Broadcast(tag, 0, BytesOf(mine));
      if (call == kBarrier) status = group.Barrier(tag);
      EXPECT_THAT(status, HasReason(v1::ERROR_REASON_COLLECTIVE_TIMEOUT, HasSubstr("step"))) << call;
      EXPECT_LT(SystemClock().Monotonic() - start, absl::Seconds(10)) << call;
      EXPECT_THAT(group.Barrier({"next", 5}), HasReason(v1::ERROR_REASON_COLLECTIVE_TIMEOUT, HasSubstr("step")));
    });
    ranks.WaitStopped(1);
    EXPECT_EQ(ranks.Wait(0), 0) << call;
  }
}

// known-bugs 34
TEST(Gloo, NamesTheRankThatDoesNotJoin) {
  Ranks ranks(3, [](JoinOptions options) {
    if (options.rank == 1) return;
    options.timeout = absl::Seconds(1);
    const auto group = JoinGloo(options);
    EXPECT_THAT(group, HasReason(v1::ERROR_REASON_COLLECTIVE_TIMEOUT, HasSubstr("without rank 1")));
    EXPECT_EQ(MetadataOf(group.status(), "ranks"), "1");
    // The store answers until the other rank has asked it.
    if (options.rank == 0) pause();
  });
  EXPECT_EQ(ranks.Wait(1), 0);
  EXPECT_EQ(ranks.Wait(2), 0);
}

// known-bugs 24
TEST(Gloo, ComparesTagsWhenAsked) {
  Ranks ranks(2, [](JoinOptions options) {
    options.compare_tags = true;
    const auto group = JoinGloo(options);
    ASSERT_OK(group);
    const char* const operation = options.rank == 0 ? "save" : "report";
    EXPECT_THAT((*group)->Barrier({operation, 1}), HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr(operation)));
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

// known-bugs 40: an address that is not this machine's, or no interface, is refused before anybody waits for it.
TEST(Gloo, RefusesAddressesThatAreNotHere) {
  Ranks ranks(1, [](JoinOptions options) {
    EXPECT_THAT(RendezvousStore::Open("192.0.2.1"), HasReason(v1::ERROR_REASON_CANNOT_BIND, HasSubstr("192.0.2.1")));
    EXPECT_THAT(RendezvousStore::Open("nowhere"), HasReason(v1::ERROR_REASON_CANNOT_BIND));
    options.bind_address = "192.0.2.1";
    EXPECT_THAT(JoinGloo(options), HasReason(v1::ERROR_REASON_CANNOT_BIND, HasSubstr("192.0.2.1")));
    options.interface = "eth-none";
    EXPECT_THAT(JoinGloo(options), HasReason(v1::ERROR_REASON_CANNOT_BIND, HasSubstr("eth-none")));
    options.rank = 1;
    EXPECT_THAT(JoinGloo(options), HasReason(v1::ERROR_REASON_INVARIANT));
  });
  EXPECT_EQ(ranks.Wait(0), 0);
}

// known-bugs 38: ports are the system's choice, so that groups side by side never meet.
TEST(Gloo, StoresHavePortsOfTheirOwn) {
  Ranks ranks(1, [](const JoinOptions& options) {
    const auto second = RendezvousStore::Open();
    ASSERT_OK(second);
    EXPECT_NE((*second)->address(), options.store_address);
  });
  EXPECT_EQ(ranks.Wait(0), 0);
}

}  // namespace
}  // namespace espalier::testing
