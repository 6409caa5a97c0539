#include "proto/support/summary.h"

#include <vector>

#include "gtest/gtest.h"
#include "proto/support/digest_sum.h"

namespace espalier {
namespace {

TEST(SummarizeTest, TheFoundingFigures) {
  std::vector<v1::ParameterSparsity> rows(2);
  rows[0].set_numel(15187968);
  rows[0].set_zeros(2322540);
  rows[0].set_prunable(true);
  rows[1].set_numel(15191712 - 15187968);
  const v1::SparsitySummary sum = Summarize(rows, 1);
  EXPECT_EQ(sum.total(), 15191712);
  EXPECT_EQ(sum.prunable(), 15187968);
  EXPECT_EQ(sum.prunable_sparse(), 2322540);
  EXPECT_EQ(sum.prunable_sparsity_percent(), 15.291973225121358);
}

TEST(SummarizeTest, NothingIsDividedByZero) {  // known-bugs 20
  EXPECT_EQ(Summarize({}, 0).sparsity_percent(), 0);
  EXPECT_EQ(Summarize({}, 0).prunable_sparsity_percent(), 0);
}

TEST(AddDigestsTest, TakesAnyTwoNumbers) {
  EXPECT_EQ(AddDigests(kDigestPrime, 0), 0U);
  EXPECT_EQ(AddDigests(kDigestPrime - 1, kDigestPrime - 1), kDigestPrime - 2);
  // 2^64 - 1 = 7 mod p.
  EXPECT_EQ(AddDigests(~uint64_t{0}, 0), 7U);
  EXPECT_EQ(AddDigests(~uint64_t{0}, ~uint64_t{0}), 14U);
}

}  // namespace
}  // namespace espalier
