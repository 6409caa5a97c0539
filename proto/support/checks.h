#pragma once

#include <cstdlib>

#include "absl/strings/string_view.h"

namespace espalier {

// Whether what was written is read back - the second path after an update, the recount after a save - and what ranks
// measured is compared with what was planned. Always, in the product; a test build can switch it off
// (ESPALIER_CHECKS=off), to show that these checks are what finds a stale tensor.
#ifdef ESPALIER_FAULTS
inline bool ChecksOn() {
  const char* value = std::getenv("ESPALIER_CHECKS");
  return value == nullptr || absl::string_view(value) != "off";
}
#else
constexpr bool ChecksOn() {
  return true;
}
#endif

}  // namespace espalier
