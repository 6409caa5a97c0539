#include "client/cli/terminal.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace espalier::cli {
namespace {

absl::string_view Environment(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool LocaleIsUtf8() {
  // As setlocale reads them; calling it would change how numbers are written.
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const absl::string_view value = Environment(name);
    if (value.empty()) continue;
    const std::string lower = absl::AsciiStrToLower(value);
    return absl::StrContains(lower, "utf-8") || absl::StrContains(lower, "utf8");
  }
  return false;
}

}  // namespace

Terminal DetectTerminal(int fd) {
  Terminal terminal;
  const absl::string_view term = Environment("TERM");
  terminal.interactive = isatty(fd) == 1 && !term.empty() && term != "dumb";
  terminal.color = terminal.interactive && Environment("NO_COLOR").empty();
  terminal.utf8 = LocaleIsUtf8();
  winsize size = {};
  if (terminal.interactive && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
  return terminal;
}

}  // namespace espalier::cli
