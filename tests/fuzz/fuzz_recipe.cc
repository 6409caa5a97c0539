// Any bytes in the place of a recipe, planned for both kinds of worker.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "proto/support/errors.h"
#include "server/recipe/planner.h"

namespace {

using namespace espalier;  // one file of a program of its own

constexpr size_t kMaxAnswer = 4096;

void Require(bool truth) {
  if (!truth) abort();
}

void Add(v1::ModelDescription& model, const std::string& name, v1::LayerKind kind, v1::Dtype dtype, int64_t rows,
         int64_t columns) {
  v1::Parameter& parameter = *model.add_parameters();
  parameter.set_name(name);
  parameter.add_shape(rows);
  parameter.add_shape(columns);
  parameter.set_dtype(dtype);
  parameter.set_layer_kind(kind);
  parameter.set_prunable(kind != v1::LAYER_KIND_OTHER);
  parameter.set_input_dimension(kind == v1::LAYER_KIND_OTHER ? -1 : 1);
}

v1::ModelDescription Model() {
  v1::ModelDescription model;
  model.set_architecture("LlamaForCausalLM");
  Add(model, "embed.weight", v1::LAYER_KIND_EMBEDDING, v1::DTYPE_BF16, 32, 8);
  model.mutable_parameters(0)->add_aliases("lm_head.weight");
  Add(model, "ids", v1::LAYER_KIND_OTHER, v1::DTYPE_I64, 2, 2);
  Add(model, "layers.0.q_proj.bias", v1::LAYER_KIND_BIAS, v1::DTYPE_F32, 1, 8);
  Add(model, "layers.0.q_proj.weight", v1::LAYER_KIND_LINEAR, v1::DTYPE_F32, 8, 8);
  Add(model, "layers.0.up_proj.weight", v1::LAYER_KIND_LINEAR, v1::DTYPE_F16, 6, 7);
  return model;
}

void CheckPlan(const v1::Plan& plan, const v1::ModelDescription& model) {
  Require(plan.modifiers_size() > 0 && plan.updates_size() > 0);
  for (const v1::PlannedModifier& modifier : plan.modifiers()) Require(modifier.parameters_size() > 0);
  for (int i = 0; i < plan.updates_size(); ++i) {
    const v1::UpdateSpec spec = SpecOfUpdate(plan, i);
    Require(spec.version() == i + 1);
    for (const int64_t target : spec.targets()) Require(target >= 0 && target <= plan.pruned_elements());
  }
  for (const v1::PlannedParameter& parameter : PlannedParameters(plan, model, 0, CountPlannedParameters(plan))) {
    Require(parameter.final_target() <= parameter.numel());
  }
  Require(SummarizePlan(plan).updates_size() == plan.updates_size());
}

// A recipe that can be planned can follow itself, unless it has no end, or there is too much of it.
void CheckTwice(const v1::Plan& once, const std::string& text, const v1::ModelDescription& model,
                const PlanOptions& options) {
  std::vector<v1::RecipeText> chain(2);
  for (v1::RecipeText& recipe : chain) recipe.set_recipe(text);
  const auto twice = MakePlan(chain, model, options);
  if (!twice.ok()) {
    const v1::ErrorReason reason = ReasonOf(twice.status());
    Require(reason == v1::ERROR_REASON_RECIPE_INVALID || reason == v1::ERROR_REASON_LIMIT_EXCEEDED);
    return;
  }
  CheckPlan(*twice, model);
  Require(twice->updates_size() == 2 * once.updates_size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const v1::ModelDescription model = Model();
  const std::string text(data, data + size);
  PlanOptions options;
  for (const v1::WorkerKind kind : {v1::WORKER_KIND_CHECKPOINT, v1::WORKER_KIND_ATTACHED}) {
    options.worker_kind = kind;
    options.optimizer_steps_per_epoch = kind == v1::WORKER_KIND_ATTACHED ? 10 : 0;
    const auto plan = MakePlan(text, "fuzz.yaml", model, options);
    if (plan.ok()) {
      CheckPlan(*plan, model);
      CheckTwice(*plan, text, model, options);
      continue;
    }
    Require(ReasonOf(plan.status()) != v1::ERROR_REASON_UNSPECIFIED && !plan.status().message().empty());
    const std::string answer = ToProto(plan.status()).SerializeAsString();
    Require(answer.size() < kMaxAnswer);
    // proto3 reads back only what is UTF-8.
    v1::Status read;
    Require(read.ParseFromString(answer));
  }
  return 0;
}
