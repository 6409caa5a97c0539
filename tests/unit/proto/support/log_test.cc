#include "proto/support/log.h"

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

TEST(LogTest, QuotesWhatNeedsIt) {
  EXPECT_EQ(FormatLogLine("run_state", {{"run", "runs/a"}, {"reason", "need 4"}, {"empty", ""}}),
            "event=run_state run=runs/a reason=\"need 4\" empty=\"\"");
  EXPECT_EQ(FormatLogLine("e", {{"v", "a\"b\\c\nd"}}), "event=e v=\"a\\\"b\\\\c\\nd\"");
}

TEST(LogTest, JsonHoldsWhatever) {
  EXPECT_EQ(FormatJsonFields("e", {{"run", "runs/a"}, {"v", "a\"b\\c\nd\xff"}}),
            "\"event\":\"e\",\"run\":\"runs/a\",\"v\":\"a\\\"b\\\\c\\nd\xef\xbf\xbd\"");
}

TEST(LogTest, RefusesAnUnknownLevel) {
  EXPECT_OK(InitLog("test", "warn"));
  EXPECT_THAT(InitLog("test", "loud"), testing::HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  EXPECT_THAT(InitLog("test", "warn", "xml"), testing::HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

}  // namespace
}  // namespace espalier
