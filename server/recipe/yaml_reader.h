#pragma once

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"
#include "server/recipe/problems.h"
#include "server/recipe/yaml_node.h"

namespace espalier {

inline constexpr size_t kMaxRecipeBytes = size_t{1} << 20;

// Reads one YAML document (JSON is YAML). What is wrong is added to `problems`; nullopt where nothing can be made of the
// text. Refused: more than kMaxRecipeBytes, what is not UTF-8, control characters, an empty text, a second document,
// tags (!x), merge keys (<<), keys that are not scalars or come twice, more than 64 levels, and aliases that expand to
// more than 16 MiB or contain themselves.
std::optional<YamlNode> ReadYaml(absl::string_view text, Problems& problems);

}  // namespace espalier
