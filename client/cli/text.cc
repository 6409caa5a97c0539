#include "client/cli/text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace espalier::cli {

std::string Thousands(int64_t value) {
  std::string digits = absl::StrCat(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string Bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Percent(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.2f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string Seconds(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d min", whole / 3600, whole % 3600 / 60);
}

std::string Count(int64_t value, absl::string_view noun) {
  return absl::StrCat(Thousands(value), " ", noun, value == 1 ? "" : "s");
}

size_t DisplayWidth(absl::string_view utf8) {
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Truncate(absl::string_view utf8, size_t width) {
  if (DisplayWidth(utf8) <= width) return std::string(utf8);
  size_t columns = 0;
  size_t end = 0;
  for (; end < utf8.size(); ++end) {
    const bool starts = (static_cast<unsigned char>(utf8[end]) & 0xC0) != 0x80;
    if (starts && ++columns >= width) break;
  }
  return width == 0 ? "" : absl::StrCat(utf8.substr(0, end), "…");
}

Table::Table(std::vector<std::string> headers) : headers_(std::move(headers)) {
  for (std::string& header : headers_) {
    right_.push_back(!header.empty() && header.front() == '>');
    if (right_.back()) header.erase(0, 1);
  }
}

void Table::Add(std::vector<std::string> cells) {
  cells.resize(headers_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  if (rows_.empty()) return "";
  std::vector<size_t> widths;
  for (size_t i = 0; i < headers_.size(); ++i) {
    size_t width = DisplayWidth(headers_[i]);
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[i]));
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string pad(widths[i] - DisplayWidth(cells[i]), ' ');
      absl::StrAppend(&text, i == 0 ? "" : "  ", right_[i] ? pad : "", cells[i], right_[i] ? "" : pad);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, text, "\n");
  };
  line(headers_);
  for (const auto& row : rows_) line(row);
  return out;
}

}  // namespace espalier::cli
