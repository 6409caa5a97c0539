#include "proto/support/fault_point.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace espalier::fault {
namespace {

void Record(absl::string_view line) {
  const char* path = std::getenv("ESPALIER_FAULT_LOG");
  if (path == nullptr) return;
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  // A lost record makes the test that waits for it fail, which is right.
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
  close(fd);
}

}  // namespace

std::string Hit(absl::string_view point, int rank) {
  const char* spec = std::getenv("ESPALIER_FAULT");
  if (spec == nullptr) return "";
  for (absl::string_view item : absl::StrSplit(spec, ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> sides = absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (sides.size() != 2) continue;
    if (sides[0] != point && sides[0] != absl::StrCat(point, "@", rank)) continue;
    Record(absl::StrCat(point, "@", rank, "\n"));
    if (sides[1] == "kill") raise(SIGKILL);
    if (sides[1] == "stop") raise(SIGSTOP);
    if (sides[1] == "term") kill(getpid(), SIGTERM);
    return std::string(sides[1]);
  }
  return "";
}

}  // namespace espalier::fault
