#pragma once

#include <string>

#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace espalier::cli {

// A message as JSON for scripts: field names as in the proto, 64-bit integers as numbers (JavaScript's 2^53 does not reach
// any count of ours), enum values without the prefix of their type, timestamps in RFC 3339, durations in seconds, an
// espalier.v1.Status as code, reason, message and metadata. Fields at their default are written too, messages only where
// they are set.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

// Two-space indentation and a newline at the end.
std::string Pretty(const nlohmann::ordered_json& json);
// One line, ", " and ": " omitted, and a newline at the end.
std::string OneLine(const nlohmann::ordered_json& json);

}  // namespace espalier::cli
