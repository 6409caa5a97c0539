#pragma once

#include <string>

namespace espalier::cli {

// From now on SIGINT and SIGTERM end the process with exit code 130 and 143, after undoing what the two functions below
// name. For commands that have nothing else to end; `espalier run` handles its signals itself.
void ExitOnInterrupt();

// The cursor is hidden, and has to be shown again at an interrupt.
void CursorHidden(bool hidden);

// Removed at an interrupt; at most one file at a time. Empty: none.
void RemoveOnInterrupt(const std::string& path);

}  // namespace espalier::cli
