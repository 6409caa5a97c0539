#include "server/recipe/modifier_counts.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "server/recipe/target_count.h"

namespace espalier {
namespace {

constexpr size_t kMaxNames = 400;

}  // namespace

int64_t CountOf(const ModelIndex& model, const RecipeModifier& modifier, int position, const Rational& sparsity) {
  if (modifier.method != v1::SELECTION_METHOD_WANDA) {
    return TargetCount(sparsity, model.numel(position), modifier.rule);
  }
  // Wanda prunes int(columns * s) of each row, whatever `compat` says.
  const int64_t columns = model.RowLength(position);
  return model.numel(position) / columns * TargetCount(sparsity, columns, v1::SELECTION_RULE_SPARSEML);
}

int64_t ElementsOf(const ModelIndex& model, const ResolvedModifier& modifier) {
  int64_t sum = 0;
  for (const int position : modifier.positions) sum += model.numel(position);
  return sum;
}

void CheckCounts(const ModelIndex& model, const ResolvedModifier& resolved, Problems& problems) {
  const RecipeModifier& modifier = *resolved.recipe;
  if (!modifier.final_sparsity || modifier.structured() || modifier.allow_empty || resolved.positions.empty()) return;
  const Rational& sparsity = *modifier.final_sparsity;
  std::vector<std::string> emptied;
  std::string first;
  if (modifier.method == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE) {
    const int64_t elements = ElementsOf(model, resolved);
    if (TargetCount(sparsity, elements, modifier.rule) == elements) emptied.emplace_back("all of its parameters");
  } else if (sparsity < Rational(1)) {
    for (const int position : resolved.positions) {
      if (CountOf(model, modifier, position, sparsity) == model.numel(position)) {
        if (emptied.empty()) first = model.at(position).name();
        emptied.push_back(Quote(model.at(position).name()));
      }
    }
  }
  if (emptied.empty()) return;
  Problem problem;
  problem.reason = v1::ERROR_REASON_TARGET_UNPRUNABLE;
  problem.mark = modifier.sparsity_mark;
  problem.field = modifier.sparsity_field;
  problem.what =
      absl::StrCat("is ", Shorten(sparsity.ToString(), 40), ", which prunes every element of ",
                   JoinLimited(emptied, ", ", kMaxNames), "; leave them out with `ignore`, or say `allow_empty: true`");
  problem.metadata = {{"parameter", first}, {"why", "every element would be pruned"}};
  problems.Add(std::move(problem));
}

}  // namespace espalier
