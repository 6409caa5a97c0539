#include "worker/session/reexec.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

char** remembered = nullptr;  // set once, before any thread

}  // namespace

void RememberArguments(char** argv) {
  remembered = argv;
}

absl::Status ReexecuteSelf() {
  // Libraries open sockets without close-on-exec. Where the kernel does not know the call (before 5.11) the descriptors
  // stay open and peers find out at their deadline.
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  execve("/proc/self/exe", remembered, environ);
  return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("execve of /proc/self/exe: ", strerror(errno)),
                   {{"what", "execve"}, {"where", "worker"}});
}

}  // namespace espalier
