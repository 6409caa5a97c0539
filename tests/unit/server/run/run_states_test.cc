#include "server/run/run_states.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::HasReason;

TEST(RunStatesTest, TheTableOfTransitions) {
  const std::set<std::pair<v1::Run::State, v1::Run::State>> legal = {
      {v1::Run::STATE_QUEUED, v1::Run::STATE_STARTING},   {v1::Run::STATE_QUEUED, v1::Run::STATE_FAILED},
      {v1::Run::STATE_QUEUED, v1::Run::STATE_CANCELLED},  {v1::Run::STATE_STARTING, v1::Run::STATE_RUNNING},
      {v1::Run::STATE_STARTING, v1::Run::STATE_FAILED},   {v1::Run::STATE_STARTING, v1::Run::STATE_CANCELLING},
      {v1::Run::STATE_RUNNING, v1::Run::STATE_SAVING},    {v1::Run::STATE_RUNNING, v1::Run::STATE_SUCCEEDED},
      {v1::Run::STATE_RUNNING, v1::Run::STATE_FAILED},    {v1::Run::STATE_RUNNING, v1::Run::STATE_CANCELLING},
      {v1::Run::STATE_SAVING, v1::Run::STATE_SUCCEEDED},  {v1::Run::STATE_SAVING, v1::Run::STATE_FAILED},
      {v1::Run::STATE_SAVING, v1::Run::STATE_CANCELLING}, {v1::Run::STATE_CANCELLING, v1::Run::STATE_CANCELLED},
      {v1::Run::STATE_SAVING, v1::Run::STATE_RUNNING},
  };
  for (int from = v1::Run::State_MIN; from <= v1::Run::State_MAX; ++from) {
    for (int to = v1::Run::State_MIN; to <= v1::Run::State_MAX; ++to) {
      const auto pair = std::pair(static_cast<v1::Run::State>(from), static_cast<v1::Run::State>(to));
      EXPECT_EQ(LegalTransition(pair.first, pair.second), legal.contains(pair))
          << StateName(pair.first) << " -> " << StateName(pair.second);
    }
  }
}

TEST(RunStatesTest, NothingLeavesATerminalState) {
  for (const v1::Run::State state : {v1::Run::STATE_SUCCEEDED, v1::Run::STATE_FAILED, v1::Run::STATE_CANCELLED}) {
    EXPECT_TRUE(IsTerminal(state));
    for (int to = v1::Run::State_MIN; to <= v1::Run::State_MAX; ++to) {
      EXPECT_FALSE(LegalTransition(state, static_cast<v1::Run::State>(to)));
    }
  }
  EXPECT_FALSE(IsTerminal(v1::Run::STATE_CANCELLING));
}

TEST(RunStatesTest, MovesSetTheirTimes) {
  v1::Run run;
  run.set_state(v1::Run::STATE_QUEUED);
  MoveTo(run, v1::Run::STATE_STARTING, "go", absl::FromUnixSeconds(10));
  EXPECT_EQ(run.start_time().seconds(), 10);
  EXPECT_EQ(run.state_reason(), "go");
  EXPECT_FALSE(run.has_end_time());
  MoveTo(run, v1::Run::STATE_FAILED, "", absl::FromUnixSeconds(20));
  EXPECT_EQ(run.end_time().seconds(), 20);
}

TEST(RunStatesTest, AConditionsTimeChangesWithItsStatus) {
  v1::Run run;
  SetCondition(run, kWorkersReady, v1::Condition::STATUS_TRUE, "Joined", "", absl::FromUnixSeconds(1));
  SetCondition(run, kWorkersReady, v1::Condition::STATUS_TRUE, "Joined", "still", absl::FromUnixSeconds(2));
  ASSERT_EQ(run.conditions_size(), 1);
  EXPECT_EQ(run.conditions(0).last_transition_time().seconds(), 1);
  EXPECT_EQ(run.conditions(0).message(), "still");
  SetCondition(run, kWorkersReady, v1::Condition::STATUS_FALSE, "Lost", "", absl::FromUnixSeconds(3));
  EXPECT_EQ(run.conditions(0).last_transition_time().seconds(), 3);
}

TEST(RunStatesTest, IllegalTransitionsSayRunAndState) {
  v1::Run run;
  run.set_name("runs/a");
  run.set_state(v1::Run::STATE_SUCCEEDED);
  const absl::Status status = IllegalFromState(run, "save it", "keep it with hold");
  EXPECT_THAT(status,
              HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION, "runs/a is SUCCEEDED: cannot save it; keep it with hold"));
  EXPECT_EQ(MetadataOf(status, "state"), "SUCCEEDED");
}

}  // namespace
}  // namespace espalier
