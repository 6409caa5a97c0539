#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "espalier/v1/plan.pb.h"

namespace espalier {

// One kind of modifier: how it selects, and the names of its fields.
struct ModifierSchema {
  v1::SelectionMethod method;
  std::vector<std::string> fields;
};

// By class name; nullptr for a name that is not ours.
const ModifierSchema* FindModifierSchema(absl::string_view type);

// All class names, sorted.
std::vector<std::string> ModifierTypes();

// Why a modifier of the ecosystem is refused; empty for a name that we have never heard of.
absl::string_view WhyForeignModifier(absl::string_view type);

// Whether some modifier has a field of this name.
bool IsModifierField(absl::string_view name);

}  // namespace espalier
