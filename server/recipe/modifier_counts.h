#pragma once

#include <cstdint>

#include "server/recipe/model_index.h"
#include "server/recipe/overlap.h"
#include "server/recipe/problems.h"
#include "server/recipe/rational.h"
#include "server/recipe/recipe.h"

namespace espalier {

// Elements that a modifier prunes of the parameter at `position` of the model, at a sparsity. Pure.
int64_t CountOf(const ModelIndex& model, const RecipeModifier& modifier, int position, const Rational& sparsity);

// Elements of all parameters of a modifier. Pure.
int64_t ElementsOf(const ModelIndex& model, const ResolvedModifier& modifier);

// Refuses (TARGET_UNPRUNABLE) a sparsity below 1 that empties a tensor by rounding, which is an accident, and a global one
// that empties all; 1 itself, per tensor, is a wish.
void CheckCounts(const ModelIndex& model, const ResolvedModifier& resolved, Problems& problems);

}  // namespace espalier
