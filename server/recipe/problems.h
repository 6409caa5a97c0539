#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/errors.pb.h"
#include "proto/support/errors.h"

namespace espalier {

// A place in a recipe's text, counted from 1; 0: none.
struct Mark {
  int line = 0;
  int column = 0;
};

// One mistake.
struct Problem {
  // Which of the chained recipes it stands in.
  int recipe = 0;
  v1::ErrorReason reason = v1::ERROR_REASON_RECIPE_INVALID;
  Mark mark;
  // Path of keys, e.g. "prune_stage.pruning_modifiers.MagnitudePruningModifier.start"; empty for the text as a whole.
  std::string field;
  // What is wrong and what to do, without place and field.
  std::string what;
  // Closest valid name; empty without.
  std::string suggestion;
  // Further metadata of the reason.
  Metadata metadata;
};

// The name of a recipe as messages show it; "recipe" for an empty one.
std::string ShownName(absl::string_view recipe_name);

// Collects mistakes, so that a person sees all of them at once. Not thread-safe.
class Problems {
 public:
  // The name of its recipe stands in front of each message. REQUIRES: not empty.
  explicit Problems(std::vector<std::string> recipe_names);

  // Mistakes added from now on stand in this recipe; the first one without. REQUIRES: it has a name.
  void In(int recipe) { recipe_ = recipe; }

  // Adds a mistake of the recipe that `In` named last.
  void Add(Problem problem);
  void Add(Mark mark, absl::string_view field, absl::string_view what, absl::string_view suggestion = "");

  bool empty() const { return problems_.empty(); }
  // OK when there are none; else one status with all of them in the order of recipes and text, as many as fit, then
  // "and n more". Reason and metadata are the first one's, with `recipe`, its name, where there are several.
  absl::Status ToStatus() const;

 private:
  const std::vector<std::string> recipe_names_;
  std::vector<Problem> problems_;
  int recipe_ = 0;
};

// `text` in a message: control characters escaped, shortened to `limit` bytes at a character's edge.
std::string Shorten(absl::string_view text, size_t limit = 80);
// The same between backquotes.
std::string Quote(absl::string_view text);

// The candidate nearest to `name` by edit distance (letter case costs nothing); empty when none is near.
std::string ClosestName(absl::string_view name, const std::vector<std::string>& candidates);

// "; did you mean `x`?", or nothing for an empty suggestion.
std::string DidYouMean(absl::string_view suggestion);

}  // namespace espalier
