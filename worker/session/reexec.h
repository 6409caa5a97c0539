#pragma once

#include <string>

#include "absl/status/status.h"

namespace espalier {

// Remembers how this process was started. Call first in main; `argv` lives as long as the process.
void RememberArguments(char** argv);

// Replaces this process by a fresh one of the same program with the same arguments and environment: the only way out of a
// call that cannot be aborted. Every descriptor but the standard ones is closed on the way, so that peers see their
// connections break at once instead of waiting for their time-outs. Returns only when that failed.
absl::Status ReexecuteSelf();

}  // namespace espalier
