#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "server/recipe/rational.h"
#include "server/recipe/recipe.h"

namespace espalier {

// A schedule in absolute optimizer steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kCubic;
  int exponent = 2;
  Rational init;
  Rational final;
  int64_t start = 0;
  int64_t end = 0;                                   // >= start
  std::vector<std::pair<int64_t, Rational>> points;  // of kMultiStep, by step
};

// Sparsity at `step`, start <= step <= end; with p = (step - start) / (end - start) and D = final - init:
//   linear      init + D p
//   cubic       init + D ((p - 1)^3 + 1)
//   polynomial  init + D p^exponent
//   multi_step  that of the last point at or before `step`, init before the first
//   constant    final
// At `end` it is `final` exactly. Clamped between init and final, then rounded to 12 decimal places, halves to even.
Rational SparsityAt(const Schedule& schedule, int64_t step);

}  // namespace espalier
