#include "server/recipe/overlap.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace espalier {
namespace {

// Where on one line of time a modifier stands. Groups never collide with each other.
struct Window {
  int group = 0;
  int64_t start = 0;
  int64_t end = 0;
};

Window WindowOf(const ResolvedModifier& modifier) {
  if (modifier.oneshot()) return {modifier.stage, 0, 1};
  const int training = -1 - modifier.recipe_index;
  // One that acts at a single step still owns that step.
  return {training, modifier.timing.start, std::max(modifier.timing.end, modifier.timing.start + 1)};
}

std::string When(const ResolvedModifier& modifier) {
  if (modifier.oneshot()) return "";
  if (modifier.timing.end == Timing::kOpen) return absl::StrCat(" (from step ", modifier.timing.start, " on)");
  return absl::StrCat(" (steps ", modifier.timing.start, " to ", modifier.timing.end, ")");
}

}  // namespace

void CheckOverlaps(const ModelIndex& model, const std::vector<ResolvedModifier>& modifiers, Problems& problems) {
  std::vector<std::vector<int>> owners(static_cast<size_t>(model.size()));
  std::vector<Window> windows;
  windows.reserve(modifiers.size());
  for (size_t i = 0; i < modifiers.size(); ++i) {
    windows.push_back(WindowOf(modifiers[i]));
    for (const int position : modifiers[i].positions) {
      owners[static_cast<size_t>(position)].push_back(static_cast<int>(i));
    }
  }
  const auto window = [&](int i) -> const Window& { return windows[static_cast<size_t>(i)]; };
  std::map<std::pair<int, int>, std::vector<int>> collisions;  // by later and earlier modifier: parameters
  for (int position = 0; position < model.size(); ++position) {
    std::vector<int>& own = owners[static_cast<size_t>(position)];
    std::sort(own.begin(), own.end(), [&](int a, int b) {
      return std::tuple(window(a).group, window(a).start, a) < std::tuple(window(b).group, window(b).start, b);
    });
    for (size_t i = 1, longest = 0; i < own.size(); ++i) {
      const Window& held = window(own[longest]);
      const Window& next = window(own[i]);
      if (held.group == next.group && next.start < held.end) {
        collisions[std::minmax(own[longest], own[i])].push_back(position);
      }
      if (held.group != next.group || next.end > held.end) longest = i;
    }
  }
  for (const auto& [pair, positions] : collisions) {
    const ResolvedModifier& first = modifiers[static_cast<size_t>(pair.first)];
    const ResolvedModifier& second = modifiers[static_cast<size_t>(pair.second)];
    const std::string& name = model.at(positions[0]).name();
    Problem problem;
    problem.reason = v1::ERROR_REASON_MODIFIERS_OVERLAP;
    problem.mark = second.recipe->mark;
    problem.field = second.recipe->field;
    problem.what = absl::StrCat(
        "prunes ", Quote(name), positions.size() > 1 ? absl::StrCat(" and ", positions.size() - 1, " more") : "",
        When(second), ", which ", Shorten(first.recipe->field, 200), " on line ", first.recipe->mark.line,
        " owns at the same time", When(first), "; give them different targets",
        second.oneshot() ? " or stages" : " or times that do not overlap");
    problem.metadata = {{"parameter", name}, {"first", first.recipe->field}, {"second", second.recipe->field}};
    problems.In(second.recipe_index);
    problems.Add(std::move(problem));
  }
}

void CheckStageOrder(const std::vector<ResolvedModifier>& modifiers, Problems& problems) {
  const ResolvedModifier* last = nullptr;  // of the earlier stages, the one that ends last
  const ResolvedModifier* current = nullptr;
  for (const ResolvedModifier& modifier : modifiers) {
    if (modifier.oneshot()) continue;
    if (current != nullptr && current->recipe_index != modifier.recipe_index) current = last = nullptr;
    if (current != nullptr && current->stage != modifier.stage) {
      if (last == nullptr || current->timing.end > last->timing.end) last = current;
      current = nullptr;
    }
    if (last != nullptr && modifier.timing.start < last->timing.end) {
      const bool open = last->timing.end == Timing::kOpen;
      problems.In(modifier.recipe_index);
      problems.Add(modifier.recipe->mark, modifier.recipe->field,
                   absl::StrCat("starts at step ", modifier.timing.start, ", before ",
                                Shorten(last->recipe->field, 200), " of an earlier stage ",
                                open ? "ends: that one has no `end`" : absl::StrCat("ends at step ", last->timing.end),
                                "; stages run one after another, and times count from the start of the training"));
    }
    if (current == nullptr || modifier.timing.end > current->timing.end) current = &modifier;
  }
}

}  // namespace espalier
