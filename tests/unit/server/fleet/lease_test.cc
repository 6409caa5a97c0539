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

TEST(ClaimTest, AllOrNone) {
  const ClaimDecision decision = DecideClaim(4, {"a", "b", "c"});
  EXPECT_TRUE(decision.workers.empty());
  EXPECT_EQ(decision.reason, "need 4, have 3 idle");
}

TEST(ClaimTest, TheFirstByNameInNaturalOrder) {
  EXPECT_EQ(DecideClaim(3, {"w10", "w2", "w1", "w03"}).workers, (std::vector<std::string>{"w1", "w2", "w03"}));
  EXPECT_EQ(DecideClaim(2, {"b-1", "a-9", "a-10"}).workers, (std::vector<std::string>{"a-9", "a-10"}));
  EXPECT_EQ(DecideClaim(2, {"w1", "w"}).workers, (std::vector<std::string>{"w", "w1"}));
}

}  // namespace
}  // namespace espalier
