#include "server/fleet/lease.h"

#include "gtest/gtest.h"
#include "server/fleet/claim.h"

namespace espalier {
namespace {

constexpr LeaseOptions kOptions{.lease = absl::Seconds(15), .heartbeat_interval = absl::Seconds(1)};

LeaseState Connected(absl::Duration last_heard, const std::string& run = "") {
  LeaseState state;
  state.connected = true;
  state.last_heard = last_heard;
  state.run = run;
  return state;
}

TEST(LeaseTest, IdleAndBusyWhileHeartbeatsCome) {
  EXPECT_EQ(DecideLease(absl::Seconds(100), Connected(absl::Seconds(99)), kOptions).state, v1::Worker::STATE_IDLE);
  EXPECT_EQ(DecideLease(absl::Seconds(100), Connected(absl::Seconds(98), "runs/a"), kOptions).state,
            v1::Worker::STATE_BUSY);
}

TEST(LeaseTest, SuspectAfterThreeMissedHeartbeats) {
  const LeaseState state = Connected(absl::Seconds(100));
  EXPECT_EQ(DecideLease(absl::Seconds(103) - absl::Nanoseconds(1), state, kOptions).state, v1::Worker::STATE_IDLE);
  const LeaseVerdict verdict = DecideLease(absl::Seconds(103), state, kOptions);
  EXPECT_EQ(verdict.state, v1::Worker::STATE_SUSPECT);
  EXPECT_EQ(verdict.reason, "its heartbeats stopped");
}

TEST(LeaseTest, SuspectAtOnceWhenTheStreamCloses) {
  LeaseState state = Connected(absl::Seconds(100));
  state.connected = false;
  EXPECT_EQ(DecideLease(absl::Seconds(100), state, kOptions).state, v1::Worker::STATE_SUSPECT);
}

TEST(LeaseTest, LostWhenTheLeaseIsOverToTheNanosecond) {
  const LeaseState state = Connected(absl::Seconds(100), "runs/a");
  EXPECT_EQ(DecideLease(absl::Seconds(115) - absl::Nanoseconds(1), state, kOptions).state, v1::Worker::STATE_SUSPECT);
  EXPECT_EQ(DecideLease(absl::Seconds(115), state, kOptions).state, v1::Worker::STATE_LOST);
}

TEST(LeaseTest, OnceLostAlwaysLost) {
  LeaseState state = Connected(absl::Seconds(100));
  state.lost = true;
  state.lost_reason = "replaced";
  const LeaseVerdict verdict = DecideLease(absl::Seconds(100), state, kOptions);
  EXPECT_EQ(verdict.state, v1::Worker::STATE_LOST);
  EXPECT_EQ(verdict.reason, "replaced");
}

TEST(LeaseTest, AShortLeaseIsSuspectAtItsHalf) {
  const LeaseOptions options{.lease = absl::Seconds(2), .heartbeat_interval = absl::Seconds(1)};
  EXPECT_EQ(DecideLease(absl::Seconds(101), Connected(absl::Seconds(100)), options).state, v1::Worker::STATE_SUSPECT);
}

std::vector<IdleWorker> OverGloo(std::vector<std::string> names) {
  std::vector<IdleWorker> idle;
  for (std::string& name : names) idle.push_back({std::move(name), "gloo"});
  return idle;
}

TEST(ClaimTest, AllOrNone) {
  const ClaimDecision decision = DecideClaim(4, OverGloo({"a", "b", "c"}));
  EXPECT_TRUE(decision.workers.empty());
  EXPECT_EQ(decision.reason, "need 4, have 3 idle");
}

TEST(ClaimTest, TheFirstByNameInNaturalOrder) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(DecideClaim(3, OverGloo({"w10", "w2", "w1", "w03"})).workers, (Names{"w1", "w2", "w03"}));
  EXPECT_EQ(DecideClaim(2, OverGloo({"b-1", "a-9", "a-10"})).workers, (Names{"a-9", "a-10"}));
  EXPECT_EQ(DecideClaim(2, OverGloo({"w1", "w"})).workers, (Names{"w", "w1"}));
}

TEST(ClaimTest, OnlyWorkersThatCanTalkToEachOther) {
  const std::vector<IdleWorker> idle = {{"w1", "nccl"}, {"w2", "gloo"}, {"w3", "nccl"}, {"w4", "gloo"}, {"w5", "gloo"}};
  EXPECT_EQ(DecideClaim(1, idle).workers, std::vector<std::string>({"w1"}));
  EXPECT_EQ(DecideClaim(2, idle).workers, std::vector<std::string>({"w1", "w3"}));
  EXPECT_EQ(DecideClaim(3, idle).workers, std::vector<std::string>({"w2", "w4", "w5"}));
  const ClaimDecision none = DecideClaim(4, idle);
  EXPECT_TRUE(none.workers.empty());
  EXPECT_EQ(none.reason, "need 4, have 5 idle, not of one back end: 3 over gloo, 2 over nccl");
}

}  // namespace
}  // namespace espalier
