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
constexpr size_t kMaxNames = 400;

bool Attached(const PlanOptions& options) {
  return options.worker_kind == v1::WORKER_KIND_ATTACHED;
}

// Makes one plan; one object a plan.
class Planner {
 public:
  Planner(const Recipe& recipe, const ModelIndex& model, const PlanOptions& options, Problems& problems)
      : recipe_(recipe),
        model_(model),
        options_(options),
        problems_(problems),
        warnings_(recipe.warnings),
        targets_(model, problems, warnings_) {}

  // The plan is complete when there are no problems.
  v1::Plan Run() {
    for (size_t i = 0; i < recipe_.stages.size(); ++i) Stage(static_cast<int>(i), recipe_.stages[i]);
    if (problems_.empty()) CheckStageOrder(modifiers_, problems_);
    CheckOverlaps(model_, modifiers_, problems_);
    if (problems_.empty()) Updates();
    Totals();
    return std::move(plan_);
  }

 private:
  void Stage(int index, const RecipeStage& stage) {
    v1::PlannedStage& planned = *plan_.add_stages();
    planned.set_name(stage.name);
    planned.set_run_type(stage.run_type);
    planned.set_run_type_inferred(stage.run_type_inferred);
    const bool train = stage.run_type == v1::RUN_TYPE_TRAIN;
    if (train && !Attached(options_) && options_.optimizer_steps_per_epoch <= 0 && NeedsStepsPerEpoch(stage)) {
      WrongKind(stage);
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
    resolved.stage = stage_index;
    resolved.in = &stage;
    resolved.recipe = &modifier;
    TargetResolver::Result found = targets_.Resolve(modifier);
    resolved.positions = std::move(found.positions);
    std::optional<Timing> timing = ResolveTiming(stage, modifier, options_.optimizer_steps_per_epoch, problems_);
    if (!timing) return;
    resolved.timing = *std::move(timing);
    CheckCounts(resolved);
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

  // Elements of one parameter that are pruned at sparsity s.
  int64_t CountOf(const RecipeModifier& modifier, int position, const Rational& sparsity) const {
    if (modifier.method != v1::SELECTION_METHOD_WANDA) {
      return TargetCount(sparsity, model_.numel(position), modifier.rule);
    }
    // Wanda prunes int(columns * s) of each row, whatever `compat` says.
    const int64_t columns = model_.RowLength(position);
    return model_.numel(position) / columns * TargetCount(sparsity, columns, v1::SELECTION_RULE_SPARSEML);
  }

  int64_t ElementsOf(const ResolvedModifier& resolved) const {
    int64_t sum = 0;
    for (const int position : resolved.positions) sum += model_.numel(position);
    return sum;
  }

  // A sparsity below 1 that empties a tensor by rounding is an accident; 1 itself is a wish.
  void CheckCounts(const ResolvedModifier& resolved) {
    const RecipeModifier& modifier = *resolved.recipe;
    if (!modifier.final_sparsity || modifier.structured() || modifier.allow_empty || resolved.positions.empty()) return;
    const Rational& sparsity = *modifier.final_sparsity;
    std::vector<std::string> emptied;
    std::string first;
    if (modifier.method == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE) {
      const int64_t elements = ElementsOf(resolved);
      if (TargetCount(sparsity, elements, modifier.rule) == elements) emptied.emplace_back("all of its parameters");
    } else if (sparsity < Rational(1)) {
      for (const int position : resolved.positions) {
        if (CountOf(modifier, position, sparsity) == model_.numel(position)) {
          if (emptied.empty()) first = model_.at(position).name();
          emptied.push_back(Quote(model_.at(position).name()));
        }
      }
    }
    if (emptied.empty()) return;
    Problem problem;
    problem.reason = v1::ERROR_REASON_TARGET_UNPRUNABLE;
    problem.mark = modifier.sparsity_mark;
    problem.field = modifier.sparsity_field;
    problem.what = absl::StrCat("is ", Shorten(sparsity.ToString(), 40), ", which prunes every element of ",
                                JoinLimited(emptied, ", ", kMaxNames),
                                "; leave them out with `ignore`, or say `allow_empty: true`");
    problem.metadata = {{"parameter", first}, {"why", "every element would be pruned"}};
    problems_.Add(std::move(problem));
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
        TooMany(*modifier.recipe, counts);
        return;
      }
    }
    std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
      return std::tuple(a.stage, a.step, a.start, a.modifier) < std::tuple(b.stage, b.step, b.start, b.modifier);
    });
    for (const Key& key : keys) Update(key.modifier, *key.tick);
  }

  void TooMany(const RecipeModifier& modifier, int64_t counts) {
    Problem problem;
    problem.reason = v1::ERROR_REASON_LIMIT_EXCEEDED;
    problem.mark = modifier.mark;
    problem.field = modifier.field;
    problem.what = absl::StrCat("brings the updates times parameters of the plan to ", counts, ", more than ",
                                kMaxTargets, "; give a larger `update_frequency`");
    problem.metadata = {{"limit", absl::StrCat(kMaxTargets)}, {"value", absl::StrCat(counts)}};
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
      update.add_targets(TargetCount(*tick.sparsity, ElementsOf(resolved), modifier.rule));
      return;
    }
    for (const int position : resolved.positions) update.add_targets(CountOf(modifier, position, *tick.sparsity));
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

  const Recipe& recipe_;
  const ModelIndex& model_;
  const PlanOptions& options_;
  Problems& problems_;
  std::vector<std::string> warnings_;
  TargetResolver targets_;
  std::vector<ResolvedModifier> modifiers_;
  v1::Plan plan_;
};

}  // namespace

absl::StatusOr<v1::Plan> MakePlan(absl::string_view recipe_text, absl::string_view recipe_name,
                                  const v1::ModelDescription& model, const PlanOptions& options) {
  ESPALIER_ASSIGN_OR_RETURN(const ModelIndex index, ModelIndex::Make(model));
  Problems problems(recipe_name);
  const std::optional<Recipe> recipe =
      ParseRecipe(recipe_text, Attached(options) ? v1::RUN_TYPE_TRAIN : v1::RUN_TYPE_ONESHOT, problems);
  if (!recipe) return problems.ToStatus();
  v1::Plan plan = Planner(*recipe, index, options, problems).Run();
  ESPALIER_RETURN_IF_ERROR(problems.ToStatus());
  plan.set_recipe_crc32(Crc32(0, recipe_text.data(), recipe_text.size()));
  return plan;
}

}  // namespace espalier
