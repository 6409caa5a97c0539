#include "server/recipe/schedule.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/oracles.h"

namespace espalier {
namespace {

Rational R(const std::string& text) {
  return Rational::Parse(text).value();
}

Schedule Make(ScheduleKind kind, int64_t end, int exponent = 2) {
  Schedule out;
  out.kind = kind;
  out.exponent = exponent;
  out.init = R("0.05");
  out.final = R("0.8");
  out.end = end;
  return out;
}

TEST(ScheduleTest, EqualsSparsemlInside) {
  const nlohmann::json oracle = testing::SparsemlVectors()["schedule"];
  // In twentieths of the oracle's unit, so that each of its indexes is a whole step.
  constexpr int64_t kScale = 20;
  Schedule multi_step = Make(ScheduleKind::kMultiStep, 10 * kScale);
  multi_step.points = {{2 * kScale, R("0.2")}, {5 * kScale, R("0.5")}};
  const std::vector<std::pair<std::string, Schedule>> cases = {
      {"linear{}", Make(ScheduleKind::kLinear, 10 * kScale)},
      {"cubic{}", Make(ScheduleKind::kCubic, 10 * kScale)},
      {"polynomial{}", Make(ScheduleKind::kPolynomial, 10 * kScale)},
      {"polynomial{\"exponent\": 3}", Make(ScheduleKind::kPolynomial, 10 * kScale, 3)},
      {"multi_step{\"steps\": [[5, 0.5], [2, 0.2]]}", multi_step},
  };
  for (const auto& [name, schedule] : cases) {
    int compared = 0;
    for (size_t i = 0; i < oracle["index"].size(); ++i) {
      const double index = oracle["index"][i].get<double>();
      if (index >= 10) continue;  // SparseML runs past the end, see below
      const double want = oracle["values"][name][i].get<double>();
      const auto step = static_cast<int64_t>(std::lround(index * kScale));
      EXPECT_NEAR(std::stod(SparsityAt(schedule, step).ToString()), want, 1e-12) << name << " at " << index;
      ++compared;
    }
    EXPECT_EQ(compared, 7) << name;
  }
}

TEST(ScheduleTest, EndsAtFinalExactlyAndStaysInside) {
  for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCubic, ScheduleKind::kPolynomial,
                                  ScheduleKind::kMultiStep, ScheduleKind::kConstant}) {
    const Schedule schedule = Make(kind, 7);
    EXPECT_EQ(SparsityAt(schedule, 7).ToString(), "0.8");
    for (int64_t step = 0; step <= 7; ++step) {
      EXPECT_GE(SparsityAt(schedule, step), schedule.init);
      EXPECT_LE(SparsityAt(schedule, step), schedule.final);
      EXPECT_GE(SparsityAt(schedule, step), SparsityAt(schedule, std::max<int64_t>(step - 1, 0)));
    }
  }
  EXPECT_EQ(SparsityAt(Make(ScheduleKind::kConstant, 7), 0).ToString(), "0.8");
}

TEST(ScheduleTest, ClampsPoints) {
  Schedule schedule = Make(ScheduleKind::kMultiStep, 10);
  schedule.points = {{2, R("0.01")}, {4, R("0.99")}};
  EXPECT_EQ(SparsityAt(schedule, 3).ToString(), "0.05");
  EXPECT_EQ(SparsityAt(schedule, 5).ToString(), "0.8");
}

TEST(ScheduleTest, IsRoundedToTwelvePlaces) {
  EXPECT_EQ(SparsityAt(Make(ScheduleKind::kLinear, 7), 1).ToString(), "0.157142857143");
  EXPECT_EQ(SparsityAt(Make(ScheduleKind::kCubic, 7), 3).ToString(), "0.660058309038");
}

TEST(ScheduleTest, FallsWhenFinalIsBelowInit) {
  Schedule schedule = Make(ScheduleKind::kLinear, 10);
  std::swap(schedule.init, schedule.final);
  EXPECT_EQ(SparsityAt(schedule, 0).ToString(), "0.8");
  EXPECT_EQ(SparsityAt(schedule, 5).ToString(), "0.425");
  EXPECT_EQ(SparsityAt(schedule, 10).ToString(), "0.05");
}

TEST(ScheduleTest, TakesVeryLongSchedules) {
  Schedule schedule = Make(ScheduleKind::kPolynomial, int64_t{1} << 50, 8);
  EXPECT_EQ(SparsityAt(schedule, int64_t{1} << 49).ToString(), "0.0529296875");
  EXPECT_EQ(SparsityAt(schedule, (int64_t{1} << 50) - 1).ToString(), "0.8");
}

}  // namespace
}  // namespace espalier
