#pragma once

#include <string>
#include <vector>

#include "espalier/v1/plan.pb.h"
#include "server/recipe/model_index.h"
#include "server/recipe/problems.h"
#include "server/recipe/recipe.h"

namespace espalier {

// Finds the parameters of modifiers; one object a plan. Not thread-safe.
class TargetResolver {
 public:
  // What the resolved modifiers of a plan may hold together: parameters and left-out ones.
  static constexpr size_t kMaxEntries = 1'000'000;
  // Regular expressions of a recipe.
  static constexpr size_t kMaxRegexes = 1000;

  struct Result {
    std::vector<int> positions;         // by name, bytewise
    std::vector<v1::LeftOut> left_out;  // likewise
  };

  // All must outlive the resolver.
  TargetResolver(const ModelIndex& model, Problems& problems, std::vector<std::string>& warnings)
      : model_(model), problems_(problems), warnings_(warnings) {}

  // The parameters that `modifier` prunes: matched by a target, not ignored, with elements and of a dtype that can be
  // pruned; for N:M and calibrated modifiers with rows that fit. Empty after a problem: RECIPE_INVALID, TARGET_UNMATCHED,
  // TARGET_UNPRUNABLE, LIMIT_EXCEEDED. Ignoring one name of a tied
  // parameter protects it under all of its names.
  Result Resolve(const RecipeModifier& modifier);

 private:
  struct Choice;

  void AddProblem(v1::ErrorReason reason, const TargetEntry& entry, absl::string_view what,
                  absl::string_view suggestion, Metadata metadata);
  bool MatchEntry(const TargetEntry& entry, std::vector<int>& positions, bool& takes_biases, bool& exact);
  std::vector<std::string> Ignored(const RecipeModifier& modifier);
  void Take(const TargetEntry& entry, const std::vector<std::string>& ignored, std::vector<Choice>& choices);
  bool CheckRows(const RecipeModifier& modifier, const std::vector<int>& positions);

  const ModelIndex& model_;
  Problems& problems_;
  std::vector<std::string>& warnings_;
  size_t entries_ = 0;
  size_t regexes_ = 0;
  int searches_ = 0;  // passes over the model made to find a suggestion
};

}  // namespace espalier
