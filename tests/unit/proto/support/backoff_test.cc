#include "proto/support/backoff.h"

#include "gtest/gtest.h"

namespace espalier {
namespace {

TEST(BackoffTest, GrowsToItsMaximumAndStaysInsideTheJitter) {
  const BackoffOptions options{absl::Milliseconds(100), 2.0, absl::Seconds(1), 0.5};
  Backoff backoff(options, 7);
  absl::Duration base = absl::Milliseconds(100);
  for (int i = 0; i < 10; ++i) {
    const absl::Duration delay = backoff.Next();
    EXPECT_GE(delay, base) << i;
    EXPECT_LE(delay, base * 1.5) << i;
    base = std::min(options.max, base * 2);
  }
}

TEST(BackoffTest, ResetStartsAgain) {
  Backoff backoff({absl::Milliseconds(100), 2.0, absl::Seconds(1), 0.0}, 7);
  backoff.Next();
  backoff.Next();
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(100));
}

}  // namespace
}  // namespace espalier
