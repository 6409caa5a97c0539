#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace espalier {

// A random (version 4) UUID from the kernel's generator, in lower case.
std::string NewUuid();

// 8-4-4-4-12 hexadecimal digits, either case.
bool IsUuid(absl::string_view text);

}  // namespace espalier
