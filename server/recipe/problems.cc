#include "server/recipe/problems.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace espalier {
namespace {

// A message that quotes nothing long stays below this; more than a screenful helps nobody anyway.
constexpr size_t kMaxMessage = 3000;
constexpr size_t kMaxLine = 1200;
constexpr size_t kMaxValue = 120;
// Names further apart than this are not what was meant, and comparing long names is slow.
constexpr size_t kMaxNameLength = 200;

bool StartsCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

// Levenshtein distance, but swapping two neighbours counts as one (optimal string alignment).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> previous(b.size() + 1);
  std::vector<size_t> current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string Line(absl::string_view recipe_name, const Problem& problem) {
  std::string out(recipe_name);
  if (problem.mark.line > 0) absl::StrAppend(&out, ":", problem.mark.line, ":", problem.mark.column);
  absl::StrAppend(&out, ": ");
  if (!problem.field.empty()) absl::StrAppend(&out, Shorten(problem.field, 2 * kMaxValue), ": ");
  absl::StrAppend(&out, problem.what, DidYouMean(problem.suggestion));
  return Shorten(out, kMaxLine);
}

}  // namespace

std::string ShownName(absl::string_view recipe_name) {
  return recipe_name.empty() ? "recipe" : Shorten(recipe_name, kMaxValue);
}

Problems::Problems(std::vector<std::string> recipe_names) : recipe_names_(std::move(recipe_names)) {}

void Problems::Add(Problem problem) {
  problem.recipe = recipe_;
  problems_.push_back(std::move(problem));
}

void Problems::Add(Mark mark, absl::string_view field, absl::string_view what, absl::string_view suggestion) {
  Problem problem;
  problem.mark = mark;
  problem.field = std::string(field);
  problem.what = std::string(what);
  problem.suggestion = std::string(suggestion);
  Add(std::move(problem));
}

absl::Status Problems::ToStatus() const {
  if (problems_.empty()) return absl::OkStatus();
  std::vector<const Problem*> sorted;
  sorted.reserve(problems_.size());
  for (const Problem& problem : problems_) sorted.push_back(&problem);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Problem* a, const Problem* b) {
    return std::tuple(a->recipe, a->mark.line, a->mark.column) < std::tuple(b->recipe, b->mark.line, b->mark.column);
  });
  std::vector<std::string> lines;
  lines.reserve(sorted.size());
  for (const Problem* problem : sorted) {
    lines.push_back(Line(ShownName(recipe_names_[static_cast<size_t>(problem->recipe)]), *problem));
  }
  const Problem& first = *sorted.front();
  Metadata metadata;
  if (first.reason == v1::ERROR_REASON_RECIPE_INVALID) {
    metadata = {{"field", Shorten(first.field, kMaxValue)},
                {"line", absl::StrCat(first.mark.line)},
                {"column", absl::StrCat(first.mark.column)}};
    if (!first.suggestion.empty()) metadata["suggestion"] = Shorten(first.suggestion, kMaxValue);
  }
  if (recipe_names_.size() > 1) {
    metadata["recipe"] = ShownName(recipe_names_[static_cast<size_t>(first.recipe)]);
  }
  for (const auto& [key, value] : first.metadata) metadata[key] = Shorten(value, kMaxValue);
  return MakeError(first.reason, JoinLimited(lines, "\n", kMaxMessage), metadata);
}

std::string Shorten(absl::string_view text, size_t limit) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    while (end < text.size() && !StartsCharacter(text[end])) ++end;
    const bool control = absl::ascii_iscntrl(static_cast<unsigned char>(text[i]));
    const std::string piece = control ? absl::StrFormat("\\x%02x", static_cast<unsigned char>(text[i]))
                                      : std::string(text.substr(i, end - i));
    if (out.size() + piece.size() > limit) return out + "...";
    out += piece;
    i = end;
  }
  return out;
}

std::string Quote(absl::string_view text) {
  return absl::StrCat("`", Shorten(text), "`");
}

std::string ClosestName(absl::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > kMaxNameLength) return "";
  const std::string lower = absl::AsciiStrToLower(name);
  // A third of the letters may differ; more is another word.
  size_t best = std::max<size_t>(1, name.size() / 3) + 1;
  std::string out;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(name.size(), candidate.size());
    const size_t shorter = std::min(name.size(), candidate.size());
    if (longer - shorter >= best) continue;
    const size_t distance = EditDistance(lower, absl::AsciiStrToLower(candidate));
    if (distance < best) {
      best = distance;
      out = candidate;
    }
  }
  return out;
}

std::string DidYouMean(absl::string_view suggestion) {
  return suggestion.empty() ? "" : absl::StrCat("; did you mean ", Quote(suggestion), "?");
}

}  // namespace espalier
