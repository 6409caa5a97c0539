#pragma once

// From a recipe's text and a model's description to a plan. Pure: no files, no network, no clock; the same inputs give
// the same plan everywhere. All functions are safe to call from any thread.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "espalier/v1/model.pb.h"
#include "espalier/v1/plan.pb.h"
#include "espalier/v1/resources.pb.h"
#include "espalier/v1/worker_service.pb.h"

namespace espalier {

struct PlanOptions {
  // Decides what a stage without `run_type` is: oneshot for checkpoint workers, train for attached ones.
  v1::WorkerKind worker_kind = v1::WORKER_KIND_CHECKPOINT;
  // Ranks of the run. Plans do not depend on it; part of the options so that callers state it once.
  int world_size = 1;
  // Optimizer steps (batches of one rank / accumulation) that make an epoch; 0: unknown, and a train stage whose times
  // are in epochs is refused.
  int64_t optimizer_steps_per_epoch = 0;
};

// Recipes that one plan may chain.
inline constexpr int kMaxRecipes = 64;

// Parses the recipes (YAML or JSON; grammar in docs/recipes.md) and resolves them against `model`, one after another: each
// has its own variables and names of stages, and all times of its train stages move by the step at which the one before it
// ends. The name of a recipe stands in front of each message about it ("half.yaml:7:5: ..."). A single recipe is a chain of
// one.
//
// Everything that is wrong is reported at once, up to what an error may hold ("and n more"): first all mistakes of the
// recipes alone, and only when there are none those of the recipes against the model. Where they have different reasons
// the status carries the first one's. Reasons:
//   RECIPE_INVALID      text, key, type, value or variable; times that do not follow each other
//   TARGET_UNMATCHED    a target matches nothing, or nothing that can be pruned
//   TARGET_UNPRUNABLE   dtype, row length and M, unknown input dimension, a tensor emptied
//   MODIFIERS_OVERLAP   two modifiers own one parameter at one time
//   WORKER_KIND         a train stage in epochs for checkpoint workers, without optimizer_steps_per_epoch
//   LIMIT_EXCEEDED      updates of a modifier, counts of the plan, parameters of all modifiers, regular expressions
//   REQUEST_INVALID     no recipe, or more than kMaxRecipes
//   CHECKPOINT_INVALID  `model` names a parameter twice, or a shape is none
//
// Counts: k = round-half-even(s * n) with s an exact decimal of at most 12 places (rule SPARSEML: k = trunc(s * n)).
// Updates are ordered by (stage, step, modifier); update i makes mask version i + 1.
absl::StatusOr<v1::Plan> MakePlan(absl::Span<const v1::RecipeText> recipes, const v1::ModelDescription& model,
                                  const PlanOptions& options);
// The plan of one recipe.
absl::StatusOr<v1::Plan> MakePlan(absl::string_view recipe_text, absl::string_view recipe_name,
                                  const v1::ModelDescription& model, const PlanOptions& options);

// The plan less what grows with the model (plan.proto: PlanSummary).
v1::PlanSummary SummarizePlan(const v1::Plan& plan);

// What GetPlan serves: one entry for each parameter of each modifier, by (modifier, name).
int64_t CountPlannedParameters(const v1::Plan& plan);
// Entries [begin, end) of them, in time that grows with end - begin and, little, with the updates.
// `model` is the one that the plan was made for, sorted
// by name; a parameter that it lacks has no numel, dtype and shape.
// REQUIRES: 0 <= begin; end <= CountPlannedParameters(plan).
std::vector<v1::PlannedParameter> PlannedParameters(const v1::Plan& plan, const v1::ModelDescription& model,
                                                    int64_t begin, int64_t end);

// OK when workers of `kind` can run every stage of the plan; else WORKER_KIND, naming stage and modifier, why, and what
// to do instead.
absl::Status CheckRunnable(const v1::Plan& plan, v1::WorkerKind kind);

// Update `update_index` as CountUpdate carries it: version = index + 1, targets = k.
// REQUIRES: 0 <= update_index < plan.updates_size().
v1::UpdateSpec SpecOfUpdate(const v1::Plan& plan, int update_index);

}  // namespace espalier
