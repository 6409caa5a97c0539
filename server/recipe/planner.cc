#include "server/recipe/planner.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "server/recipe/model_index.h"
#include "server/recipe/modifier_counts.h"
#include "server/recipe/overlap.h"
#include "server/recipe/problems.h"
#include "server/recipe/recipe_parser.h"
#include "server/recipe/target_count.h"
#include "server/recipe/target_resolver.h"
#include "server/recipe/timing.h"

namespace espalier {
namespace {

// Counts that a plan may hold: some tens of megabytes.
constexpr int64_t kMaxTargets = 4'000'000;

bool Attached(const PlanOptions& options) {
  return options.worker_kind == v1::WORKER_KIND_ATTACHED;
}

void Shift(Timing& timing, int64_t by) {
  timing.start += by;
  if (timing.end != Timing::kOpen) timing.end += by;
  for (Tick& tick : timing.ticks) tick.step += by;
}

// Makes one plan; one object a plan.
class Planner {
 public:
  Planner(const std::vector<Recipe>& recipes, absl::Span<const v1::RecipeText> texts, const ModelIndex& model,
          const PlanOptions& options, Problems& problems)
      : recipes_(recipes),
        texts_(texts),
        model_(model),
        options_(options),
        problems_(problems),
        targets_(model, problems, warnings_) {}

  // The plan is complete when there are no problems.
  v1::Plan Run() {
    for (size_t i = 0; i < recipes_.size(); ++i) ChainRecipe(static_cast<int>(i));
    if (problems_.empty()) CheckStageOrder(modifiers_, problems_);
    CheckOverlaps(model_, modifiers_, problems_);
    if (problems_.empty()) Updates();
    Totals();
    return std::move(plan_);
  }

 private:
  void ChainRecipe(int index) {
    const Recipe& recipe = recipes_[static_cast<size_t>(index)];
    const size_t warned = warnings_.size();
    recipe_ = index;
    start_of_recipe_ = chain_end_;
    problems_.In(index);
    warnings_.insert(warnings_.end(), recipe.warnings.begin(), recipe.warnings.end());
    const size_t first = modifiers_.size();
    for (const RecipeStage& stage : recipe.stages) Stage(stage);
    // What follows moves by the end of what is planned now.
    for (size_t i = first; i < modifiers_.size(); ++i) {
      if (!modifiers_[i].oneshot() && modifiers_[i].timing.end >= chain_end_) {
        chain_end_ = modifiers_[i].timing.end;
        last_ = {index, modifiers_[i].recipe};
      }
    }
    if (recipes_.size() == 1) return;
    for (size_t i = warned; i < warnings_.size(); ++i) {
      warnings_[i] = absl::StrCat(NameOf(index), ":", warnings_[i]);
    }
  }

  std::string NameOf(int recipe) const { return ShownName(texts_[static_cast<size_t>(recipe)].recipe_name()); }

  void Stage(const RecipeStage& stage) {
    const int index = plan_.stages_size();
    v1::PlannedStage& planned = *plan_.add_stages();
    planned.set_recipe(recipe_);
    planned.set_name(stage.name);
    planned.set_run_type(stage.run_type);
    planned.set_run_type_inferred(stage.run_type_inferred);
    const bool train = stage.run_type == v1::RUN_TYPE_TRAIN;
    if (train && !Attached(options_) && options_.optimizer_steps_per_epoch <= 0 && NeedsStepsPerEpoch(stage)) {
      WrongKind(stage);
      return;
    }
    if (train && chain_end_ == Timing::kOpen && last_.first < recipe_) {
      problems_.Add(
          stage.mark, stage.field,
          absl::StrCat("never starts: it follows ", NameOf(last_.first), ", where ", Shorten(last_.second->field, 200),
                       " on line ", last_.second->mark.line, " has no `end`; give it one"));
      return;
    }
    for (const RecipeModifier& modifier : stage.modifiers) Modifier(index, stage, modifier);
  }

  // Its times cannot be known, and what is wrong is not that they are unknown.
  void WrongKind(const RecipeStage& stage) {
    Problem problem;
    problem.reason = v1::ERROR_REASON_WORKER_KIND;
    problem.mark = stage.mark;
    problem.field = stage.field;
    problem.what =
        "is a train stage, and checkpoint workers do not train; attach to the training job, or prune at once with "
        "`run_type: oneshot` (a plan alone is possible when `optimizer_steps_per_epoch` is given)";
    problem.metadata = {{"stage", stage.name}, {"kind", "checkpoint"}};
    problems_.Add(std::move(problem));
  }

  void Modifier(int stage_index, const RecipeStage& stage, const RecipeModifier& modifier) {
    ResolvedModifier resolved;
    resolved.recipe_index = recipe_;
    resolved.stage = stage_index;
    resolved.in = &stage;
    resolved.recipe = &modifier;
    TargetResolver::Result found = targets_.Resolve(modifier);
    resolved.positions = std::move(found.positions);
    std::optional<Timing> timing = ResolveTiming(stage, modifier, options_.optimizer_steps_per_epoch, problems_);
    if (!timing) return;
    // Whole steps, and last: rounding to steps and the schedule do not depend on where a recipe stands in a chain.
    resolved.timing = *std::move(timing);
    if (!resolved.oneshot()) Shift(resolved.timing, start_of_recipe_);
    CheckCounts(model_, resolved, problems_);
    if (modifier.calibrated() && !modifier.structured() && !modifier.final_sparsity) {
      warnings_.push_back(absl::StrCat(modifier.mark.line, ":", modifier.mark.column, ": ",
                                       Shorten(modifier.field, 200),
                                       ": how much of each layer is pruned is only known when it runs"));
    }
    Describe(resolved, std::move(found.left_out));
    modifiers_.push_back(std::move(resolved));
  }

  void Describe(const ResolvedModifier& resolved, std::vector<v1::LeftOut> left_out) {
    const RecipeModifier& modifier = *resolved.recipe;
    v1::PlannedModifier& planned = *plan_.add_modifiers();
    planned.set_stage(resolved.stage);
    planned.set_type(modifier.type);
    planned.set_method(modifier.structured() && !modifier.calibrated() ? v1::SELECTION_METHOD_N_OF_M : modifier.method);
    planned.set_rule(modifier.rule);
    planned.mutable_structure()->set_n(modifier.keep);
    planned.mutable_structure()->set_m(modifier.group);
    planned.set_monotone(modifier.monotone);
    planned.set_allow_empty(modifier.allow_empty);
    planned.set_leave_enabled(modifier.leave_enabled);
    for (const int position : resolved.positions) planned.add_parameters(model_.at(position).name());
    for (v1::LeftOut& left : left_out) *planned.add_left_out() = std::move(left);
    planned.set_start_step(resolved.timing.start);
    planned.set_end_step(resolved.timing.end == Timing::kOpen ? -1 : resolved.timing.end);
  }

  // In the order in which they run: of windows that touch, the one that began earlier has its last tick first.
  void Updates() {
    struct Key {
      int stage;
      int64_t step;
      int64_t start;
      int modifier;
      const Tick* tick;
    };
    std::vector<Key> keys;
    int64_t counts = 0;
    for (size_t i = 0; i < modifiers_.size(); ++i) {
      const ResolvedModifier& modifier = modifiers_[i];
      for (const Tick& tick : modifier.timing.ticks) {
        keys.push_back({modifier.stage, tick.step, modifier.timing.start, static_cast<int>(i), &tick});
      }
      if (modifier.recipe->final_sparsity) {
        counts += static_cast<int64_t>(modifier.timing.ticks.size() * modifier.positions.size());
      }
      if (counts > kMaxTargets) {
        TooMany(modifier, counts);
        return;
      }
    }
    std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
      return std::tuple(a.stage, a.step, a.start, a.modifier) < std::tuple(b.stage, b.step, b.start, b.modifier);
    });
    for (const Key& key : keys) Update(key.modifier, *key.tick);
  }

  void TooMany(const ResolvedModifier& modifier, int64_t counts) {
    Problem problem;
    problem.reason = v1::ERROR_REASON_LIMIT_EXCEEDED;
    problem.mark = modifier.recipe->mark;
    problem.field = modifier.recipe->field;
    problem.what = absl::StrCat("brings the updates times parameters of the plan to ", counts, ", more than ",
                                kMaxTargets, "; give a larger `update_frequency`");
    problem.metadata = {{"limit", absl::StrCat(kMaxTargets)}, {"value", absl::StrCat(counts)}};
    problems_.In(modifier.recipe_index);
    problems_.Add(std::move(problem));
  }

  void Update(int index, const Tick& tick) {
    const ResolvedModifier& resolved = modifiers_[static_cast<size_t>(index)];
    const RecipeModifier& modifier = *resolved.recipe;
    v1::PlannedUpdate& update = *plan_.add_updates();
    update.set_modifier(index);
    update.set_step(tick.step);
    if (!tick.sparsity || modifier.structured()) return;
    update.set_sparsity(tick.sparsity->ToString());
    if (modifier.method == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE) {
      update.add_targets(TargetCount(*tick.sparsity, ElementsOf(model_, resolved), modifier.rule));
      return;
    }
    for (const int position : resolved.positions) {
      update.add_targets(CountOf(model_, modifier, position, *tick.sparsity));
    }
  }

  void Totals() {
    std::vector<bool> owned(static_cast<size_t>(model_.size()));
    for (const ResolvedModifier& modifier : modifiers_) {
      for (const int position : modifier.positions) owned[static_cast<size_t>(position)] = true;
    }
    int64_t parameters = 0;
    int64_t elements = 0;
    for (int i = 0; i < model_.size(); ++i) {
      if (!owned[static_cast<size_t>(i)]) continue;
      ++parameters;
      elements += model_.numel(i);
    }
    plan_.set_pruned_parameters(parameters);
    plan_.set_pruned_elements(elements);
    plan_.set_model_parameters(model_.size());
    plan_.set_model_elements(model_.total());
    for (const std::string& warning : warnings_) plan_.add_warnings(warning);
  }

  const std::vector<Recipe>& recipes_;
  const absl::Span<const v1::RecipeText> texts_;
  const ModelIndex& model_;
  const PlanOptions& options_;
  Problems& problems_;
  std::vector<std::string> warnings_;
  TargetResolver targets_;
  std::vector<ResolvedModifier> modifiers_;
  v1::Plan plan_;
  int recipe_ = 0;  // that is being planned
  // Where the recipes planned so far end, and the modifier, with its recipe, that ends last.
  int64_t chain_end_ = 0;
  std::pair<int, const RecipeModifier*> last_ = {0, nullptr};
  int64_t start_of_recipe_ = 0;
};

}  // namespace

absl::StatusOr<v1::Plan> MakePlan(absl::Span<const v1::RecipeText> recipes, const v1::ModelDescription& model,
                                  const PlanOptions& options) {
  if (recipes.empty() || recipes.size() > kMaxRecipes) {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                     absl::StrCat("recipes: ", recipes.size(), " are given, and a plan has 1 to ", kMaxRecipes),
                     {{"field", "recipes"}});
  }
  ESPALIER_ASSIGN_OR_RETURN(const ModelIndex index, ModelIndex::Make(model));
  std::vector<std::string> names;
  for (const v1::RecipeText& text : recipes) names.push_back(text.recipe_name());
  Problems problems(std::move(names));
  const v1::RunType default_run_type = Attached(options) ? v1::RUN_TYPE_TRAIN : v1::RUN_TYPE_ONESHOT;
  std::vector<Recipe> parsed;
  for (size_t i = 0; i < recipes.size(); ++i) {
    problems.In(static_cast<int>(i));
    std::optional<Recipe> recipe = ParseRecipe(recipes[i].recipe(), default_run_type, problems);
    if (recipe) parsed.push_back(*std::move(recipe));
  }
  ESPALIER_RETURN_IF_ERROR(problems.ToStatus());
  v1::Plan plan = Planner(parsed, recipes, index, options, problems).Run();
  ESPALIER_RETURN_IF_ERROR(problems.ToStatus());
  std::vector<std::string> texts;
  for (const v1::RecipeText& text : recipes) texts.push_back(text.recipe());
  plan.set_recipe_crc32(Crc32OfTexts(texts));
  for (const v1::RecipeText& text : recipes.subspan(1)) *plan.add_then() = text;
  return plan;
}

absl::StatusOr<v1::Plan> MakePlan(absl::string_view recipe_text, absl::string_view recipe_name,
                                  const v1::ModelDescription& model, const PlanOptions& options) {
  v1::RecipeText text;
  text.set_recipe(std::string(recipe_text));
  text.set_recipe_name(std::string(recipe_name));
  return MakePlan(absl::MakeConstSpan(&text, 1), model, options);
}

}  // namespace espalier
