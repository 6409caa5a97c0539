#include "worker/report/report_table.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "worker/report/report_json.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

constexpr absl::string_view kBold = "\x1b[1m";
constexpr absl::string_view kGreen = "\x1b[32m";
constexpr absl::string_view kRed = "\x1b[31m";
constexpr absl::string_view kReset = "\x1b[0m";

constexpr size_t kColumns = 8;
constexpr size_t kLeftAligned = 3;  // the first columns are texts, the others figures
constexpr size_t kPlannedColumn = kColumns - 1;
using Line = std::array<std::string, kColumns>;

// A name cannot move the cursor or break a line.
std::string Printable(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += c;
    }
  }
  return out;
}

// Characters of UTF-8 text: bytes that do not continue one.
size_t Width(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string PercentText(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.2f %%", static_cast<double>(part) / static_cast<double>(whole) * 100);
}

bool Shown(const v1::ParameterSparsity& row) {
  return row.prunable() || row.masked() > 0 || row.planned() >= 0;
}

Line LineOf(const v1::ParameterSparsity& row) {
  std::string planned;
  if (row.planned() >= 0) planned = row.planned() == row.masked() ? "ok" : absl::StrCat(row.planned());
  return {Printable(row.name()),      row.shape().empty() ? "scalar" : absl::StrJoin(row.shape(), "x"),
          DtypeName(row.dtype()),     absl::StrCat(row.zeros()),
          absl::StrCat(row.numel()),  PercentText(row.zeros(), row.numel()),
          absl::StrCat(row.masked()), planned};
}

// One line for several parameters.
Line SumLine(const std::string& label, absl::Span<const v1::ParameterSparsity* const> rows) {
  int64_t zeros = 0;
  int64_t numel = 0;
  int64_t masked = 0;
  for (const v1::ParameterSparsity* row : rows) {
    zeros += row->zeros();
    numel += row->numel();
    masked += row->masked();
  }
  return {label, "", "", absl::StrCat(zeros), absl::StrCat(numel), PercentText(zeros, numel), absl::StrCat(masked), ""};
}

std::vector<Line> Lines(absl::Span<const v1::ParameterSparsity> rows, int64_t max_rows) {
  std::vector<Line> lines = {{"parameter", "shape", "dtype", "zeros", "of", "sparsity", "masked", "planned"}};
  std::vector<const v1::ParameterSparsity*> more;
  std::vector<const v1::ParameterSparsity*> others;
  for (const v1::ParameterSparsity& row : rows) {
    if (!Shown(row)) {
      others.push_back(&row);
    } else if (max_rows > 0 && static_cast<int64_t>(lines.size()) > max_rows) {
      more.push_back(&row);
    } else {
      lines.push_back(LineOf(row));
    }
  }
  if (!more.empty()) lines.push_back(SumLine(absl::StrCat("(and ", more.size(), " more)"), more));
  if (!others.empty()) lines.push_back(SumLine(absl::StrCat("(", others.size(), " not prunable)"), others));
  return lines;
}

absl::string_view ColorOf(size_t line, size_t column, const std::string& cell) {
  if (line == 0) return kBold;
  if (column != kPlannedColumn || cell.empty()) return "";
  return cell == "ok" ? kGreen : kRed;
}

void AppendAligned(const std::vector<Line>& lines, bool color, std::string& out) {
  std::array<size_t, kColumns> widths = {};
  for (const Line& line : lines) {
    for (size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], Width(line[c]));
  }
  for (size_t l = 0; l < lines.size(); ++l) {
    std::string text;
    for (size_t c = 0; c < kColumns; ++c) {
      const std::string& cell = lines[l][c];
      const std::string padding(widths[c] - Width(cell), ' ');
      const absl::string_view paint = color ? ColorOf(l, c, cell) : "";
      const std::string painted = paint.empty() ? cell : absl::StrCat(paint, cell, kReset);
      absl::StrAppend(&text, c == 0 ? "" : "  ", c < kLeftAligned ? painted + padding : padding + painted);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, text, "\n");
  }
}

}  // namespace

std::string ReportTable(absl::Span<const v1::ParameterSparsity> rows, const v1::SparsitySummary& summary,
                        const v1::Provenance* provenance, const ReportTableOptions& options) {
  std::string out;
  AppendAligned(Lines(rows, options.max_rows), options.color, out);
  absl::StrAppend(&out, "\n", summary.total(), " total params, ", summary.sparse(),
                  " of them zero: ", FloatRepr(summary.sparsity_percent()), " % sparsity\n", summary.prunable(),
                  " prunable params, ", summary.prunable_sparse(),
                  " of them zero: ", FloatRepr(summary.prunable_sparsity_percent()), " % sparsity\n");
  absl::StrAppend(&out, summary.masked(), " masked, mask version ", summary.mask_version(), "\n");
  if (provenance != nullptr) {
    absl::StrAppend(&out, ReportModeName(provenance->mode()), ", world size ", provenance->world_size(), ", ",
                    absl::StrFormat("%.3f s, ", provenance->elapsed_seconds()), provenance->bytes_moved(),
                    " bytes moved\n");
  }
  return out;
}

}  // namespace espalier
