#pragma once

namespace espalier::cli {

// What may be written to a descriptor.
struct Terminal {
  // A terminal on which lines can be redrawn (TERM is not "dumb").
  bool interactive = false;
  // Colours: interactive and NO_COLOR is unset.
  bool color = false;
  // The locale's character set is UTF-8.
  bool utf8 = false;
  // Columns.
  int width = 80;
};

Terminal DetectTerminal(int fd);

}  // namespace espalier::cli
