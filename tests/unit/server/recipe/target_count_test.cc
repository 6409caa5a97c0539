#include "server/recipe/target_count.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace espalier {
namespace {

int64_t Exact(const char* sparsity, int64_t n) {
  return TargetCount(Rational::Parse(sparsity).value(), n, v1::SELECTION_RULE_EXACT);
}

TEST(TargetCountTest, RoundsHalvesToEven) {
  // n = 10: what SparseML's older mask creators, which were right, give.
  EXPECT_EQ(Exact("0.05", 10), 0);
  EXPECT_EQ(Exact("0.15", 10), 2);
  EXPECT_EQ(Exact("0.25", 10), 2);
  EXPECT_EQ(Exact("0.35", 10), 4);
  EXPECT_EQ(Exact("0.45", 10), 4);
  EXPECT_EQ(Exact("0.5", 7), 4);
  EXPECT_EQ(Exact("0.5", 5), 2);
  EXPECT_EQ(Exact("0.5", 0), 0);
  EXPECT_EQ(Exact("0", 1000), 0);
  EXPECT_EQ(Exact("1", 1000), 1000);
  EXPECT_EQ(Exact("1.0", 1), 1);
}

TEST(TargetCountTest, IsExactWhereDoublesAreNot) {
  // 0.29 * 100 is 28.999999999999996 in double precision, 0.145 * 1000 is 145 exactly.
  EXPECT_EQ(TargetCount(Rational::Parse("0.29").value(), 100, v1::SELECTION_RULE_SPARSEML), 29);
  EXPECT_EQ(Exact("0.7", 15), 10);                                      // 10.5
  EXPECT_EQ(Exact("0.9", 1'000'000'000'000'005), 900'000'000'000'004);  // ...004.5
  EXPECT_EQ(Exact("0.9", 1'000'000'000'000'015), 900'000'000'000'014);  // ...013.5
  EXPECT_EQ(Exact("0.999999999999", 1'000'000'000'000'000), 999'999'999'999'000);
  EXPECT_EQ(Exact("0.5", INT64_MAX), INT64_MAX / 2 + 1);  // ...903.5, and 903 is odd
}

TEST(TargetCountTest, TakesDecimalsOfAnyLength) {
  EXPECT_EQ(Exact("0.4999999999999999999999999999999999999", 1), 0);
  EXPECT_EQ(Exact("0.5000000000000000000000000000000000001", 1), 1);
  EXPECT_EQ(Exact("0.5000000000000000000000000000000000000", 1), 0);
  EXPECT_EQ(Exact("0.2500000000000000000000000000000000001", 2), 1);
  EXPECT_EQ(TargetCount(Rational::Parse("0.9999999999999999999999999999999999999").value(), 1'000'000,
                        v1::SELECTION_RULE_SPARSEML),
            999'999);
}

TEST(TargetCountTest, CutsByTheRuleOfSparseML) {
  const auto cut = [](const char* sparsity, int64_t n) {
    return TargetCount(Rational::Parse(sparsity).value(), n, v1::SELECTION_RULE_SPARSEML);
  };
  EXPECT_EQ(cut("0.375", 8), 3);
  EXPECT_EQ(cut("0.124", 8), 0);
  EXPECT_EQ(cut("0.125", 8), 1);
  EXPECT_EQ(cut("0.99", 100), 99);
  EXPECT_EQ(cut("1", 8), 8);
}

}  // namespace
}  // namespace espalier
