#include "server/fleet/claim.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

ClaimDecision DecideClaim(int world_size, std::vector<IdleWorker> idle) {
  const auto need = static_cast<size_t>(world_size);
  std::sort(idle.begin(), idle.end(),
            [](const IdleWorker& a, const IdleWorker& b) { return NaturalLess(a.name, b.name); });
  std::map<std::string, std::vector<std::string>> by_backend;
  for (const IdleWorker& worker : idle) by_backend[worker.backend].push_back(worker.name);
  for (const IdleWorker& worker : idle) {
    std::vector<std::string>& companions = by_backend[worker.backend];
    if (companions.size() < need) continue;
    companions.resize(need);
    return {std::move(companions), ""};
  }
  std::string reason = absl::StrCat("need ", need, ", have ", idle.size(), " idle");
  if (idle.size() >= need) {
    const auto one = [](std::string* out, const auto& group) {
      absl::StrAppend(out, group.second.size(), " over ", group.first);
    };
    absl::StrAppend(&reason, ", not of one back end: ", absl::StrJoin(by_backend, ", ", one));
  }
  return {{}, reason};
}

}  // namespace espalier
