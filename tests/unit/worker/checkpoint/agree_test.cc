#include "worker/checkpoint/agree.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/thread_collective.h"
#include "worker/collective/single_process.h"

namespace espalier {
namespace {

using testing::HasReason;
using ::testing::HasSubstr;

constexpr CollectiveTag kTag = {.operation = "test", .command_id = 1};

TEST(AgreeOn, NobodyFailed) {
  testing::ThreadGroup group(3);
  group.Run([](Collective& c) { EXPECT_OK(AgreeOn(absl::OkStatus(), c, kTag)); });
}

TEST(AgreeOn, EveryRankGetsTheErrorOfTheLowestThatFailed) {  // known-bugs 33
  testing::ThreadGroup group(4);
  group.Run([](Collective& c) {
    absl::Status mine;
    if (c.rank() == 1) mine = MakeError(v1::ERROR_REASON_OUTPUT_EXISTS, "there", {{"path", "/x"}});
    if (c.rank() == 3) mine = MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED, std::string(3000, 'x'));
    const absl::Status agreed = AgreeOn(mine, c, kTag);
    EXPECT_THAT(agreed, HasReason(v1::ERROR_REASON_OUTPUT_EXISTS, "there"));
    EXPECT_EQ(MetadataOf(agreed, "rank"), "1");
    EXPECT_EQ(MetadataOf(agreed, "path"), "/x");
    // And the group goes on.
    EXPECT_OK(AgreeOn(absl::OkStatus(), c, kTag));
  });
}

TEST(AgreeOn, AloneItIsOnesOwn) {
  SingleProcess alone;
  EXPECT_THAT(AgreeOn(MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED, "x"), alone, kTag),
              HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED));
}

}  // namespace
}  // namespace espalier
