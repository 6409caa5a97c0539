#include "server/fleet/claim.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace espalier {
namespace {

// Runs of digits compare as numbers; equal so far: bytewise.
bool NaturalLess(absl::string_view a, absl::string_view b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!absl::ascii_isdigit(a[i]) || !absl::ascii_isdigit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto digits = [](absl::string_view text, size_t& at) {
      while (at < text.size() && text[at] == '0') ++at;
      const size_t begin = at;
      while (at < text.size() && absl::ascii_isdigit(text[at])) ++at;
      return text.substr(begin, at - begin);
    };
    const absl::string_view x = digits(a, i), y = digits(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

}  // namespace

ClaimDecision DecideClaim(int world_size, std::vector<std::string> idle) {
  const size_t need = static_cast<size_t>(world_size);
  if (idle.size() < need) return {{}, absl::StrCat("need ", need, ", have ", idle.size(), " idle")};
  std::sort(idle.begin(), idle.end(), NaturalLess);
  idle.resize(need);
  return {std::move(idle), ""};
}

}  // namespace espalier
