#pragma once

#include <string>
#include <vector>

#include "server/recipe/problems.h"
#include "server/recipe/recipe.h"
#include "server/recipe/variables.h"
#include "server/recipe/yaml_node.h"

namespace espalier {

// Where a modifier stands.
struct ModifierPlace {
  std::string type;   // class name, one that FindModifierSchema knows
  Mark mark;          // of its key
  std::string field;  // its path
  v1::RunType run_type = v1::RUN_TYPE_ONESHOT;
  bool run_type_inferred = false;
};

// Reads one modifier; `value` is the mapping of its fields. Mistakes (RECIPE_INVALID) go to `problems` (the result is then
// not to be used), fields without effect to `warnings`.
RecipeModifier ParseModifier(const ModifierPlace& place, const YamlNode& value, Variables& variables,
                             Problems& problems, std::vector<std::string>& warnings);

}  // namespace espalier
