#pragma once

// How the command writes figures for people. Independent of the locale: thousands are parted by commas, decimals by a dot.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace espalier::cli {

// 15,187,968
std::string Thousands(int64_t value);
// 269.1 MB; decimal units.
std::string Bytes(int64_t bytes);
// part / whole as "15.29 %"; "-" where whole is 0.
std::string Percent(int64_t part, int64_t whole);
// 0.84 s, 12.3 s, 4 min 05 s, 2 h 10 min
std::string Seconds(absl::Duration duration);
// 1 parameter, 2 parameters
std::string Count(int64_t value, absl::string_view noun);

// Columns seen on a terminal: code points, of which wide ones are not expected here.
size_t DisplayWidth(absl::string_view utf8);
// The first `width` columns; an ellipsis in place of the last where something was cut.
std::string Truncate(absl::string_view utf8, size_t width);

// Left-aligned text in columns two spaces apart; a column whose header begins with '>' is right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);
  // As many cells as headers.
  void Add(std::vector<std::string> cells);
  // Every line ends with a newline; no trailing spaces. Empty without rows.
  std::string Render() const;

 private:
  std::vector<std::string> headers_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace espalier::cli
