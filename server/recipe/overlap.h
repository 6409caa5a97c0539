#pragma once

#include <vector>

#include "server/recipe/model_index.h"
#include "server/recipe/problems.h"
#include "server/recipe/recipe.h"
#include "server/recipe/timing.h"

namespace espalier {

// A modifier of a plan with what it owns and when.
struct ResolvedModifier {
  int recipe_index = 0;  // of the chain
  int stage = 0;
  const RecipeStage* in = nullptr;
  const RecipeModifier* recipe = nullptr;
  std::vector<int> positions;
  Timing timing;

  bool oneshot() const { return in->run_type == v1::RUN_TYPE_ONESHOT; }
};

// Refuses two modifiers that own one parameter at one time (MODIFIERS_OVERLAP), naming both. One-shot stages run one
// after another, and so do recipes, so only modifiers of the same one can collide; train modifiers collide when their
// windows [start, end) share a step. Windows that only touch are fine.
void CheckOverlaps(const ModelIndex& model, const std::vector<ResolvedModifier>& modifiers, Problems& problems);

// Refuses (RECIPE_INVALID) a train stage that starts before an earlier one of its recipe has ended: stages run one after
// another.
void CheckStageOrder(const std::vector<ResolvedModifier>& modifiers, Problems& problems);

}  // namespace espalier
