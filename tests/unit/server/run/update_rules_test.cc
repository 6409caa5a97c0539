#include "server/run/update_rules.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using testing::HasReason;
using testing::IsOk;

v1::UpdateSpec Spec(v1::SelectionMethod method, const std::vector<int64_t>& targets) {
  v1::UpdateSpec spec;
  spec.set_version(3);
  spec.set_method(method);
  spec.add_parameters("a");
  spec.add_parameters("b");
  spec.mutable_targets()->Assign(targets.begin(), targets.end());
  return spec;
}

RankCounts Counts(const std::vector<int64_t>& counts) {
  return {counts, {}, {}};
}

RankUpdate Update(const std::vector<int64_t>& counts, const std::vector<int64_t>& zeros, uint64_t hash = 7,
                  uint64_t digest = 1) {
  RankUpdate update{{counts, zeros, std::vector<int64_t>(counts.size(), 0)}, {}};
  update.result.set_version(3);
  update.result.set_selection_hash(hash);
  update.result.set_mask_digest(digest);
  return update;
}

TEST(DecidePrunedTest, PerTensorTheLargerOfTargetAndZeros) {
  const auto intent =
      DecidePruned(Spec(v1::SELECTION_METHOD_MAGNITUDE, {50, 50}), {100, 100}, {Counts({10, 40}), Counts({20, 30})});
  ASSERT_THAT(intent, IsOk());
  EXPECT_THAT(intent->targets, ElementsAre(50, 70));
  EXPECT_FALSE(intent->at_least);
}

TEST(DecidePrunedTest, GlobalTheSameOfTheTotal) {
  const auto intent =
      DecidePruned(Spec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, {50}), {100, 100}, {Counts({30, 40}), Counts({0, 5})});
  ASSERT_THAT(intent, IsOk());
  EXPECT_THAT(intent->targets, ElementsAre(75));
}

TEST(DecidePrunedTest, StructuredAndConstantTakeWhatTheRanksCount) {
  for (const auto method : {v1::SELECTION_METHOD_N_OF_M, v1::SELECTION_METHOD_CONSTANT}) {
    const auto intent = DecidePruned(Spec(method, {}), {100, 100}, {Counts({30, 0}), Counts({20, 5})});
    ASSERT_THAT(intent, IsOk());
    EXPECT_THAT(intent->targets, ElementsAre(50, 5));
  }
}

TEST(DecidePrunedTest, ThePeersRuleGivesLowerBounds) {
  v1::UpdateSpec spec = Spec(v1::SELECTION_METHOD_MAGNITUDE, {50, 50});
  spec.set_rule(v1::SELECTION_RULE_SPARSEML);
  const auto intent = DecidePruned(spec, {100, 100}, {Counts({0, 0})});
  ASSERT_THAT(intent, IsOk());
  EXPECT_TRUE(intent->at_least);
}

TEST(DecidePrunedTest, CountsThatDoNotFitAreRefused) {
  const v1::UpdateSpec spec = Spec(v1::SELECTION_METHOD_MAGNITUDE, {50, 50});
  EXPECT_THAT(DecidePruned(spec, {100, 100}, {Counts({1})}), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(DecidePruned(spec, {100, 100}, {Counts({1, -1})}), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(DecidePruned(spec, {100, 100}, {Counts({60, 0}), Counts({60, 0})}),
              HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(DecidePruned(Spec(v1::SELECTION_METHOD_MAGNITUDE, {50}), {100, 100}, {Counts({0, 0})}),
              HasReason(v1::ERROR_REASON_INVARIANT));
}

class CheckUpdateTest : public ::testing::Test {
 protected:
  absl::StatusOr<Committed> Check(const std::vector<RankUpdate>& ranks, bool checks = true) {
    return CheckUpdate(pushed_, intent_, ranks, checks);
  }
  v1::UpdateSpec pushed_ = Spec(v1::SELECTION_METHOD_MAGNITUDE, {50, 70});
  Intent intent_{{50, 70}, false};
};

TEST_F(CheckUpdateTest, SumsCountsAndDigests) {
  const uint64_t p = (uint64_t{1} << 61) - 1;
  const auto committed = Check({Update({20, 30}, {20, 30}, 7, p - 1), Update({30, 40}, {35, 40}, 7, 5)});
  ASSERT_THAT(committed, IsOk());
  EXPECT_THAT(committed->masked, ElementsAre(50, 70));
  EXPECT_EQ(committed->mask_digest, 4u);
  EXPECT_EQ(committed->selection_hash, 7u);
}

TEST_F(CheckUpdateTest, AnotherSelectionNamesTheRank) {
  const auto status =
      Check({Update({20, 30}, {20, 30}, 7), Update({30, 40}, {30, 40}, 7), Update({0, 0}, {0, 0}, 8)}).status();
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_STATE_DIVERGED));
  EXPECT_EQ(MetadataOf(status, "rank"), "2");
}

TEST_F(CheckUpdateTest, AnotherVersionIsDivergence) {
  RankUpdate late = Update({30, 40}, {30, 40});
  late.result.set_version(2);
  EXPECT_THAT(Check({Update({20, 30}, {20, 30}), late}), HasReason(v1::ERROR_REASON_STATE_DIVERGED));
}

TEST_F(CheckUpdateTest, ViolationsNameTheParameter) {
  RankUpdate bad = Update({50, 70}, {50, 70});
  bad.counts.violations[1] = 4;
  const auto status = Check({bad}).status();
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE));
  EXPECT_EQ(MetadataOf(status, "parameter"), "b");
  EXPECT_EQ(MetadataOf(status, "got"), "4");
}

TEST_F(CheckUpdateTest, FewerZerosThanMaskedPositions) {
  EXPECT_THAT(Check({Update({50, 70}, {50, 69})}), HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE));
}

TEST_F(CheckUpdateTest, MeasuredMustBePlannedToTheElement) {
  EXPECT_THAT(Check({Update({51, 70}, {51, 70})}), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(Check({Update({49, 70}, {49, 70})}), HasReason(v1::ERROR_REASON_INVARIANT));
  intent_.at_least = true;
  EXPECT_THAT(Check({Update({51, 70}, {51, 70})}), IsOk());
  EXPECT_THAT(Check({Update({49, 70}, {49, 70})}), HasReason(v1::ERROR_REASON_INVARIANT));
}

TEST_F(CheckUpdateTest, AGlobalUpdateIsCheckedByItsTotal) {
  pushed_ = Spec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, {120});
  intent_ = {{120}, false};
  EXPECT_THAT(Check({Update({100, 20}, {100, 20})}), IsOk());
  EXPECT_THAT(Check({Update({100, 21}, {100, 21})}), HasReason(v1::ERROR_REASON_INVARIANT));
}

TEST_F(CheckUpdateTest, MissingCountsAreNeverTakenForZero) {
  EXPECT_THAT(Check({Update({50, 70}, {})}), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(Check({Update({}, {})}), HasReason(v1::ERROR_REASON_INVARIANT));
}

TEST_F(CheckUpdateTest, WithoutChecksAStaleTensorPasses) {
  RankUpdate stale = Update({50, 70}, {0, 0});
  stale.counts.violations = {50, 70};
  EXPECT_THAT(Check({stale}), HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE));
  EXPECT_THAT(Check({stale}, /*checks=*/false), IsOk());
}

TEST(CheckPlannedTest, EveryPlannedRowMustBeMeasured) {
  v1::ParameterSparsity row;
  row.set_name("a");
  row.set_numel(100);
  row.set_planned(50);
  row.set_masked(50);
  row.set_zeros(51);
  EXPECT_THAT(CheckPlanned({row}), IsOk());
  row.set_zeros(49);
  EXPECT_THAT(CheckPlanned({row}), HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE));
  row.set_zeros(60);
  row.set_masked(60);
  EXPECT_THAT(CheckPlanned({row}), HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE));
  row.set_planned(-1);
  EXPECT_THAT(CheckPlanned({row}), IsOk());
}

}  // namespace
}  // namespace espalier
