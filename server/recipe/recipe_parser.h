#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "server/recipe/problems.h"
#include "server/recipe/recipe.h"

namespace espalier {

inline constexpr size_t kMaxModifiers = 1000;

// Reads a recipe's text: stages, modifiers and their fields, variables evaluated. Pure. Mistakes (RECIPE_INVALID) go to
// `problems`; nullopt when there is any. `default_run_type` is that of stages without `run_type`.
std::optional<Recipe> ParseRecipe(absl::string_view text, v1::RunType default_run_type, Problems& problems);

}  // namespace espalier
