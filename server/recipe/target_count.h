#pragma once

#include <cstdint>

#include "espalier/v1/plan.pb.h"
#include "server/recipe/rational.h"

namespace espalier {

// Elements out of n to prune at sparsity s: round-half-even(s * n), or trunc(s * n) by SELECTION_RULE_SPARSEML. Exact
// for every n. REQUIRES: 0 <= s <= 1, n >= 0.
int64_t TargetCount(const Rational& sparsity, int64_t n, v1::SelectionRule rule);

}  // namespace espalier
