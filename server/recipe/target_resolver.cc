#include "server/recipe/target_resolver.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/recipe/target_pattern.h"

namespace espalier {
namespace {

// Later mistakes of the same kind get no suggestion: each search reads the whole model.
constexpr int kMaxSearches = 10;
// Bytes of a list of names inside one message.
constexpr size_t kMaxNames = 400;

std::string Names(const ModelIndex& model, const std::vector<int>& positions) {
  std::vector<std::string> names;
  names.reserve(positions.size());
  for (const int position : positions) names.push_back(Quote(model.at(position).name()));
  return JoinLimited(names, ", ", kMaxNames);
}

std::string Where(const TargetEntry& entry) {
  return absl::StrCat(entry.mark.line, ":", entry.mark.column, ": ", Shorten(entry.field, 200));
}

}  // namespace

// What became of one parameter.
struct TargetResolver::Choice {
  bool matched = false;
  bool taken = false;
  std::string reason;  // why it is left alone
};

void TargetResolver::AddProblem(v1::ErrorReason reason, const TargetEntry& entry, absl::string_view what,
                                absl::string_view suggestion, Metadata metadata) {
  Problem problem;
  problem.reason = reason;
  problem.mark = entry.mark;
  problem.field = entry.field;
  problem.what = absl::StrCat(Quote(entry.text), " ", what);
  problem.suggestion = std::string(suggestion);
  problem.metadata = std::move(metadata);
  problems_.Add(std::move(problem));
}

bool TargetResolver::MatchEntry(const TargetEntry& entry, std::vector<int>& positions, bool& takes_biases,
                                bool& exact) {
  if (absl::StartsWith(entry.text, "re:") && ++regexes_ > kMaxRegexes) {
    if (regexes_ == kMaxRegexes + 1) {
      AddProblem(v1::ERROR_REASON_LIMIT_EXCEEDED, entry,
                 absl::StrCat("is one regular expression too many, a recipe has at most ", kMaxRegexes), "",
                 {{"limit", absl::StrCat(kMaxRegexes)}, {"value", absl::StrCat(regexes_)}});
    }
    return false;
  }
  std::string error;
  const std::optional<TargetPattern> pattern = TargetPattern::Parse(entry.text, model_, error);
  const std::optional<std::vector<int>> found = pattern ? pattern->Match(error) : std::nullopt;
  if (!found) {
    problems_.Add(entry.mark, entry.field, absl::StrCat(Quote(entry.text), ": ", error));
    return false;
  }
  positions = *found;
  takes_biases = pattern->takes_biases();
  exact = pattern->exact();
  return true;
}

std::vector<std::string> TargetResolver::Ignored(const RecipeModifier& modifier) {
  std::vector<std::string> ignored(static_cast<size_t>(model_.size()));
  for (const TargetEntry& entry : modifier.ignore) {
    std::vector<int> positions;
    bool unused = false;
    if (!MatchEntry(entry, positions, unused, unused)) continue;
    for (const int position : positions) {
      std::string& by = ignored[static_cast<size_t>(position)];
      if (by.empty()) by = absl::StrCat("ignored by ", Quote(entry.text));
    }
    if (!positions.empty()) continue;
    const std::string nearest =
        ++searches_ <= kMaxSearches && !absl::StartsWith(entry.text, "re:") ? model_.Nearest(entry.text) : "";
    warnings_.push_back(absl::StrCat(Where(entry), ": ", Quote(entry.text),
                                     " matches no parameter of the model, so it protects nothing",
                                     DidYouMean(nearest)));
  }
  return ignored;
}

void TargetResolver::Take(const TargetEntry& entry, const std::vector<std::string>& ignored,
                          std::vector<Choice>& choices) {
  std::vector<int> positions;
  bool takes_biases = false;
  bool exact = false;
  if (!MatchEntry(entry, positions, takes_biases, exact)) return;
  if (positions.empty()) {
    std::string suggestion;
    std::string why = "matches no parameter of the model";
    if (++searches_ <= kMaxSearches) {
      std::string error;
      why = TargetPattern::Parse(entry.text, model_, error)->WhyNothing(suggestion);
    }
    AddProblem(v1::ERROR_REASON_TARGET_UNMATCHED, entry, why, suggestion, {{"target", entry.text}});
    return;
  }
  std::vector<int> unprunable;
  std::vector<int> embeddings;
  std::string why;
  bool dtype = false;
  size_t usable = 0;
  for (const int position : positions) {
    const v1::Parameter& parameter = model_.at(position);
    Choice& choice = choices[static_cast<size_t>(position)];
    choice.matched = true;
    std::string reason = ignored[static_cast<size_t>(position)];
    if (!reason.empty()) {
      ++usable;  // left out on purpose
    } else if (!takes_biases && IsBias(parameter)) {
      reason = "a bias, which only its own name or an expression with \"bias\" takes";
    } else if (model_.numel(position) == 0) {
      reason = "has no elements";
    } else if (!CanPrune(parameter.dtype())) {
      reason = absl::StrCat("dtype ", DtypeText(parameter.dtype()), " cannot be pruned (F64, F32, F16 and BF16 can)");
      dtype = true;
    } else {
      choice.taken = true;
      ++usable;
      if (parameter.layer_kind() == v1::LAYER_KIND_EMBEDDING) embeddings.push_back(position);
      continue;
    }
    if (choice.reason.empty()) choice.reason = reason;
    if (ignored[static_cast<size_t>(position)].empty()) {
      unprunable.push_back(position);
      if (why.empty()) why = reason;
    }
  }
  if (usable == 0 || (exact && !unprunable.empty())) {
    const std::string names = Names(model_, unprunable);
    if (dtype) {
      AddProblem(v1::ERROR_REASON_TARGET_UNPRUNABLE, entry,
                 absl::StrCat("matches only what cannot be pruned: ", names, ": ", why), "",
                 {{"parameter", model_.at(unprunable[0]).name()}, {"why", why}});
    } else {
      AddProblem(v1::ERROR_REASON_TARGET_UNMATCHED, entry,
                 absl::StrCat("matches nothing that can be pruned: ", names, ": ", why), "", {{"target", entry.text}});
    }
  }
  if (entry.text == "__ALL_PRUNABLE__" && !embeddings.empty()) {
    warnings_.push_back(absl::StrCat(Where(entry), ": takes the embeddings too, which SparseML's does not: ",
                                     Names(model_, embeddings), "; put them under `ignore` to keep them"));
  }
}

bool TargetResolver::CheckRows(const RecipeModifier& modifier, const std::vector<int>& positions) {
  std::vector<int> unknown;
  std::vector<int> ragged;
  for (const int position : positions) {
    const int64_t row = model_.RowLength(position);
    if (row == 0) {
      unknown.push_back(position);
    } else if (modifier.structured() && row % modifier.group != 0) {
      ragged.push_back(position);
    }
  }
  const auto refuse = [&](const std::vector<int>& which, absl::string_view why) {
    if (which.empty()) return;
    Problem problem;
    problem.reason = v1::ERROR_REASON_TARGET_UNPRUNABLE;
    problem.mark = modifier.mark;
    problem.field = modifier.field;
    problem.what = absl::StrCat("cannot prune ", Names(model_, which), ": ", why, "; put them under `ignore`");
    problem.metadata = {{"parameter", model_.at(which[0]).name()}, {"why", std::string(why)}};
    problems_.Add(std::move(problem));
  };
  const std::string what = modifier.structured() ? absl::StrCat(modifier.keep, ":", modifier.group) : modifier.type;
  refuse(unknown, absl::StrCat(what, " works along the input dimension, and which one that is is not known here"));
  std::string lengths;
  if (!ragged.empty()) {
    lengths = absl::StrCat("a row has ", model_.RowLength(ragged[0]), " elements, not a multiple of ", modifier.group);
  }
  refuse(ragged, lengths);
  return unknown.empty() && ragged.empty();
}

TargetResolver::Result TargetResolver::Resolve(const RecipeModifier& modifier) {
  const std::vector<std::string> ignored = Ignored(modifier);
  std::vector<Choice> choices(static_cast<size_t>(model_.size()));
  for (const TargetEntry& entry : modifier.targets) Take(entry, ignored, choices);
  Result out;
  std::vector<int> matched;
  for (int i = 0; i < model_.size(); ++i) {
    if (choices[static_cast<size_t>(i)].matched) matched.push_back(i);
  }
  std::sort(matched.begin(), matched.end(), [&](int a, int b) { return model_.at(a).name() < model_.at(b).name(); });
  entries_ += matched.size();
  if (entries_ > kMaxEntries) {
    Problem problem;
    problem.reason = v1::ERROR_REASON_LIMIT_EXCEEDED;
    problem.mark = modifier.mark;
    problem.field = modifier.field;
    problem.what = absl::StrCat("the modifiers of the recipe have more than ", kMaxEntries, " parameters together");
    problem.metadata = {{"limit", absl::StrCat(kMaxEntries)}, {"value", absl::StrCat(entries_)}};
    problems_.Add(std::move(problem));
    return out;
  }
  for (const int position : matched) {
    Choice& choice = choices[static_cast<size_t>(position)];
    if (choice.taken) {
      out.positions.push_back(position);
      continue;
    }
    v1::LeftOut& left = out.left_out.emplace_back();
    left.set_name(model_.at(position).name());
    left.set_reason(std::move(choice.reason));
  }
  if (out.positions.empty() && !matched.empty() && problems_.empty()) {
    Problem problem;
    problem.reason = v1::ERROR_REASON_TARGET_UNMATCHED;
    problem.mark = modifier.mark;
    problem.field = modifier.field;
    problem.what = "nothing is left to prune: all that the targets match is ignored";
    problem.metadata = {{"target", modifier.targets[0].text}};
    problems_.Add(std::move(problem));
  }
  if ((modifier.structured() || modifier.calibrated()) && !CheckRows(modifier, out.positions)) out.positions.clear();
  return out;
}

}  // namespace espalier
