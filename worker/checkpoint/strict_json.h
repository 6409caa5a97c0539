#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier {

// Parses one JSON text. CHECKPOINT_INVALID, naming `file`, where it is not JSON or not UTF-8, where an object has a key
// twice, or where it is nested more than 64 deep. The result is an object or the call fails.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, absl::string_view file);

}  // namespace espalier
