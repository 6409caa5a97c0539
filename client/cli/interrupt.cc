#include "client/cli/interrupt.h"

#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "proto/support/errors.h"

namespace espalier::cli {
namespace {

std::atomic<bool> cursor_hidden = false;
// Written before `has_file` is set and after it is cleared, so that the handler never sees half a path.
std::atomic<bool> has_file = false;
char file[PATH_MAX];

void OnInterrupt(int signal) {
  constexpr char kShowCursor[] = "\x1b[?25h\n";
  if (cursor_hidden && write(STDERR_FILENO, kShowCursor, sizeof kShowCursor - 1) < 0) {
    // Nothing can be done about it here.
  }
  if (has_file) unlink(file);
  _exit(signal == SIGINT ? kExitInterrupted : kExitTerminated);
}

}  // namespace

void ExitOnInterrupt() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void CursorHidden(bool hidden) {
  cursor_hidden = hidden;
}

void RemoveOnInterrupt(const std::string& path) {
  has_file = false;
  if (path.empty() || path.size() >= sizeof file) return;
  memcpy(file, path.c_str(), path.size() + 1);
  has_file = true;
}

}  // namespace espalier::cli
