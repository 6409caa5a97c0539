// What others read out of a plan.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "server/recipe/planner.h"
#include "server/recipe/problems.h"

namespace espalier {
namespace {

constexpr int kMaxWarnings = 100;

bool IsCalibrated(v1::SelectionMethod method) {
  return method == v1::SELECTION_METHOD_WANDA || method == v1::SELECTION_METHOD_SPARSE_GPT;
}

int64_t NumelOf(const v1::Parameter& parameter) {
  int64_t numel = 1;
  for (const int64_t dimension : parameter.shape()) numel *= dimension;
  return numel;
}

const v1::Parameter* Find(const v1::ModelDescription& model, const std::string& name) {
  const auto found = std::lower_bound(model.parameters().begin(), model.parameters().end(), name,
                                      [](const v1::Parameter& p, const std::string& n) { return p.name() < n; });
  return found != model.parameters().end() && found->name() == name ? &*found : nullptr;
}

// The last update of each of the modifiers [begin, end); null where there is none.
std::vector<const v1::PlannedUpdate*> LastUpdates(const v1::Plan& plan, int begin, int end) {
  std::vector<const v1::PlannedUpdate*> last(static_cast<size_t>(end - begin));
  size_t missing = last.size();
  for (auto it = plan.updates().rbegin(); it != plan.updates().rend() && missing > 0; ++it) {
    if (it->modifier() < begin || it->modifier() >= end) continue;
    const v1::PlannedUpdate*& place = last[static_cast<size_t>(it->modifier() - begin)];
    if (place != nullptr) continue;
    place = &*it;
    --missing;
  }
  return last;
}

absl::Status WrongKind(const v1::Plan& plan, const v1::PlannedStage& stage, absl::string_view kind,
                       absl::string_view what) {
  const std::string of =
      stage.recipe() == 0 ? "" : absl::StrCat(" of ", ShownName(plan.then(stage.recipe() - 1).recipe_name()));
  return MakeError(v1::ERROR_REASON_WORKER_KIND, absl::StrCat("stage ", Quote(stage.name()), of, ": ", what),
                   {{"stage", Shorten(stage.name(), 120)}, {"kind", std::string(kind)}});
}

}  // namespace

v1::PlanSummary SummarizePlan(const v1::Plan& plan) {
  v1::PlanSummary out;
  *out.mutable_stages() = plan.stages();
  for (const v1::PlannedModifier& modifier : plan.modifiers()) {
    v1::PlannedModifier& copy = *out.add_modifiers();
    copy.set_stage(modifier.stage());
    copy.set_type(modifier.type());
    copy.set_method(modifier.method());
    copy.set_rule(modifier.rule());
    *copy.mutable_structure() = modifier.structure();
    copy.set_monotone(modifier.monotone());
    copy.set_allow_empty(modifier.allow_empty());
    copy.set_leave_enabled(modifier.leave_enabled());
    copy.set_start_step(modifier.start_step());
    copy.set_end_step(modifier.end_step());
  }
  for (const v1::PlannedUpdate& update : plan.updates()) {
    v1::PlannedUpdate& copy = *out.add_updates();
    copy.set_modifier(update.modifier());
    copy.set_step(update.step());
    copy.set_sparsity(update.sparsity());
  }
  const int total = plan.warnings_size();
  for (int i = 0; i < total && (total <= kMaxWarnings || i < kMaxWarnings - 1); ++i) out.add_warnings(plan.warnings(i));
  if (total > kMaxWarnings) out.add_warnings(absl::StrCat("and ", total - kMaxWarnings + 1, " more"));
  out.set_pruned_parameters(plan.pruned_parameters());
  out.set_pruned_elements(plan.pruned_elements());
  out.set_model_parameters(plan.model_parameters());
  out.set_model_elements(plan.model_elements());
  out.set_recipe_crc32(plan.recipe_crc32());
  return out;
}

int64_t CountPlannedParameters(const v1::Plan& plan) {
  int64_t count = 0;
  for (const v1::PlannedModifier& modifier : plan.modifiers()) count += modifier.parameters_size();
  return count;
}

std::vector<v1::PlannedParameter> PlannedParameters(const v1::Plan& plan, const v1::ModelDescription& model,
                                                    int64_t begin, int64_t end) {
  std::vector<v1::PlannedParameter> out;
  if (begin >= end) return out;
  out.reserve(static_cast<size_t>(end - begin));
  int i = 0;
  int64_t first = 0;  // number of the first entry of modifier i
  for (; first + plan.modifiers(i).parameters_size() <= begin; ++i) first += plan.modifiers(i).parameters_size();
  const int begin_modifier = i;
  int end_modifier = i;
  for (int64_t at = first; at < end; ++end_modifier) at += plan.modifiers(end_modifier).parameters_size();
  const std::vector<const v1::PlannedUpdate*> last = LastUpdates(plan, begin_modifier, end_modifier);
  for (; i < end_modifier; ++i) {
    const v1::PlannedModifier& modifier = plan.modifiers(i);
    const v1::PlannedUpdate* update = last[static_cast<size_t>(i - begin_modifier)];
    const bool each = modifier.method() != v1::SELECTION_METHOD_GLOBAL_MAGNITUDE && update != nullptr &&
                      update->targets_size() == modifier.parameters_size();
    const int64_t to = std::min<int64_t>(end - first, modifier.parameters_size());
    for (int j = static_cast<int>(std::max<int64_t>(begin - first, 0)); j < to; ++j) {
      v1::PlannedParameter& entry = out.emplace_back();
      entry.set_name(modifier.parameters(j));
      entry.set_modifier(i);
      entry.set_final_target(each ? update->targets(j) : -1);
      const v1::Parameter* parameter = Find(model, modifier.parameters(j));
      if (parameter == nullptr) continue;
      entry.set_numel(NumelOf(*parameter));
      entry.set_dtype(parameter->dtype());
      *entry.mutable_shape() = parameter->shape();
    }
    first += modifier.parameters_size();
  }
  return out;
}

absl::Status CheckRunnable(const v1::Plan& plan, v1::WorkerKind kind) {
  const bool attached = kind == v1::WORKER_KIND_ATTACHED;
  const absl::string_view kind_name = attached ? "attached" : "checkpoint";
  for (const v1::PlannedStage& stage : plan.stages()) {
    if (stage.run_type() == v1::RUN_TYPE_TRAIN && !attached) {
      return WrongKind(plan, stage, kind_name,
                       "it is a train stage, and checkpoint workers do not train; attach to the training job, or prune "
                       "at once with `run_type: oneshot`");
    }
  }
  for (const v1::PlannedModifier& modifier : plan.modifiers()) {
    if (!IsCalibrated(modifier.method())) continue;
    const v1::PlannedStage& stage = plan.stages(modifier.stage());
    if (attached) {
      return WrongKind(plan, stage, kind_name,
                       absl::StrCat(modifier.type(),
                                    " needs calibration, which attached workers do not do; run the "
                                    "stage on the saved checkpoint"));
    }
    return WrongKind(plan, stage, kind_name,
                     absl::StrCat(modifier.type(),
                                  " needs calibration data and forward passes, which the workers of this build do not "
                                  "do; use MagnitudePruningModifier"));
  }
  return absl::OkStatus();
}

v1::UpdateSpec SpecOfUpdate(const v1::Plan& plan, int update_index) {
  const v1::PlannedUpdate& update = plan.updates(update_index);
  const v1::PlannedModifier& modifier = plan.modifiers(update.modifier());
  v1::UpdateSpec out;
  out.set_version(update_index + 1);
  out.set_method(modifier.method());
  out.set_rule(modifier.rule());
  *out.mutable_structure() = modifier.structure();
  out.set_monotone(modifier.monotone());
  out.set_allow_empty(modifier.allow_empty());
  *out.mutable_parameters() = modifier.parameters();
  *out.mutable_targets() = update.targets();
  return out;
}

}  // namespace espalier
