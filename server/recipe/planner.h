#pragma once

// From a recipe's text and a model's description to a plan. Pure: no files, no network, no clock; the same inputs give
// the same plan everywhere. All functions are safe to call from any thread.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// Parses `recipe_text` (YAML or JSON; grammar in docs/recipes.md) and resolves it against `model`. `recipe_name` stands
// in front of each message ("half.yaml:7:5: ...").
//
// Everything that is wrong is reported at once, up to what an error may hold ("and n more"): first all mistakes of the
// recipe alone, and only when there are none those of the recipe against the model. Where they have different reasons
// the status carries the first one's. Reasons: RECIPE_INVALID, TARGET_UNMATCHED, TARGET_UNPRUNABLE, MODIFIERS_OVERLAP.
//
// Counts: k = round-half-even(s * n) with s an exact decimal of at most 12 places (rule SPARSEML: k = trunc(s * n)).
// Updates are ordered by (stage, step, modifier); update i makes mask version i + 1.
absl::StatusOr<v1::Plan> MakePlan(absl::string_view recipe_text, absl::string_view recipe_name,
                                  const v1::ModelDescription& model, const PlanOptions& options);

// The plan less what grows with the model (plan.proto: PlanSummary).
v1::PlanSummary SummarizePlan(const v1::Plan& plan);

// What GetPlan serves, one entry for each parameter of each modifier, by (modifier, name). `model` is the one that the
// plan was made for; a parameter that it lacks has no numel, dtype and shape.
std::vector<v1::PlannedParameter> PlannedParameters(const v1::Plan& plan, const v1::ModelDescription& model);

// OK when workers of `kind` can run every stage of the plan; else WORKER_KIND, naming stage and modifier, why, and what
// to do instead.
absl::Status CheckRunnable(const v1::Plan& plan, v1::WorkerKind kind);

// Update `update_index` as CountUpdate carries it: version = index + 1, targets = k.
// REQUIRES: 0 <= update_index < plan.updates_size().
v1::UpdateSpec SpecOfUpdate(const v1::Plan& plan, int update_index);

}  // namespace espalier
