#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "espalier/v1/model.pb.h"
#include "espalier/v1/plan.pb.h"
#include "nlohmann/json.hpp"

namespace espalier::cli {

// A plan for people: what each modifier prunes, parameter by parameter, and what it leaves out and why; then the warnings.
std::string PlanText(const v1::Plan& plan, const v1::ModelDescription& model, absl::string_view recipe,
                     absl::string_view path);

// The same for programs: {"recipe", "then" (names of the recipes that follow), "model", "summary", "stages": [{"recipe" (0:
// the first), "name", "run_type", "run_type_inferred", "modifiers":
// [{"type", "method", "rule", "structure", "monotone", "start_step", "end_step", "updates": [{"step", "sparsity",
// "target"}], "parameters": [{"name", "dtype", "shape", "numel", "target"}], "left_out": [{"name", "reason"}]}]}],
// "warnings"}. `target`: elements pruned at the last update, in `updates` over all parameters; null where only the data
// decides (N:M, Constant; for a parameter of a global selection).
nlohmann::ordered_json PlanJson(const v1::Plan& plan, const v1::ModelDescription& model, absl::string_view recipe,
                                absl::string_view path);

}  // namespace espalier::cli
