#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "server/recipe/problems.h"
#include "server/recipe/rational.h"
#include "server/recipe/recipe.h"

namespace espalier {

// A change of a modifier's masks.
struct Tick {
  int64_t step = 0;
  std::optional<Rational> sparsity;  // absent for CONSTANT, N:M and what calibration decides
};

// When a modifier acts, in optimizer steps; all 0 in a one-shot stage.
struct Timing {
  static constexpr int64_t kOpen = std::numeric_limits<int64_t>::max();

  int64_t start = 0;
  int64_t end = 0;  // exclusive; kOpen without one
  std::vector<Tick> ticks;
};

// Updates that one modifier may have.
inline constexpr int64_t kMaxTicks = 20'000;

// Puts a modifier on the optimizer's steps, counted from the start of its recipe. `steps_per_epoch` 0: unknown. nullopt
// after a problem: RECIPE_INVALID, LIMIT_EXCEEDED. Pure.
std::optional<Timing> ResolveTiming(const RecipeStage& stage, const RecipeModifier& modifier, int64_t steps_per_epoch,
                                    Problems& problems);

// Whether a time of the stage is in epochs, so that it needs steps_per_epoch.
bool NeedsStepsPerEpoch(const RecipeStage& stage);

}  // namespace espalier
