#include "server/recipe/modifier_schema.h"

#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"

namespace espalier {
namespace {

using Names = std::vector<std::string>;
using Schemas = std::map<std::string, ModifierSchema, std::less<>>;

Names Join(const std::vector<Names>& parts) {
  Names out;
  for (const Names& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

const Schemas& AllSchemas() {
  static const auto* schemas = [] {
    const Names where = {"targets", "ignore"};
    const Names times = {"start", "end", "update_frequency", "update"};
    const Names structure = {"mask_structure", "nm_counts"};
    const Names schedule = {"final_sparsity",   "sparsity",       "init_sparsity",
                            "update_scheduler", "scheduler_args", "leave_enabled"};
    const Names selection = {"monotone", "allow_empty", "compat"};
    const Names layers = {"sparsity",  "sparsity_profile",  "owl_m",
                          "owl_lmbda", "sequential_update", "sequential_targets"};
    const Names hessian = {"block_size", "dampening_frac", "preserve_sparsity_mask", "offload_hessians"};
    const Names magnitude = Join({where, times, structure, schedule, selection});
    const Names calibrated = Join({where, times, structure, layers});
    return new Schemas{
        {"ConstantPruningModifier", {v1::SELECTION_METHOD_CONSTANT, Join({where, times})}},
        {"GlobalMagnitudePruningModifier", {v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, magnitude}},
        {"MagnitudePruningModifier", {v1::SELECTION_METHOD_MAGNITUDE, Join({magnitude, {"apply_globally"}})}},
        {"SparseGPTModifier", {v1::SELECTION_METHOD_SPARSE_GPT, Join({calibrated, hessian})}},
        {"WandaPruningModifier", {v1::SELECTION_METHOD_WANDA, calibrated}},
    };
  }();
  return *schemas;
}

}  // namespace

const ModifierSchema* FindModifierSchema(absl::string_view type) {
  const auto found = AllSchemas().find(type);
  return found == AllSchemas().end() ? nullptr : &found->second;
}

std::vector<std::string> ModifierTypes() {
  Names out;
  for (const auto& [type, schema] : AllSchemas()) out.push_back(type);
  return out;
}

absl::string_view WhyForeignModifier(absl::string_view type) {
  constexpr absl::string_view kPruning[] = {"ACDC",       "GMPruning", "LayerPruning", "MFAC",       "Movement",
                                            "OBSPruning", "REAP",      "RigL",         "Structured", "TopKAST"};
  constexpr absl::string_view kQuantizing[] = {"Quant", "GPTQ",      "AWQ",         "AutoRound",
                                               "QuIP",  "SpinQuant", "Equalization"};
  constexpr absl::string_view kTraining[] = {"Distill", "Epoch", "LearningRate", "Trainable", "Layerwise"};
  const auto holds = [&](absl::string_view part) { return absl::StrContains(type, part); };
  if (!absl::EndsWith(type, "Modifier") || FindModifierSchema(type) != nullptr) return "";
  if (absl::c_any_of(kQuantizing, holds)) return "is not a sparsity modifier: it quantizes";
  if (absl::c_any_of(kTraining, holds)) return "is not a sparsity modifier: it belongs to the trainer";
  if (absl::c_any_of(kPruning, holds)) return "prunes in a way that is not available here";
  return "";
}

bool IsModifierField(absl::string_view name) {
  return absl::c_any_of(AllSchemas(),
                        [&](const auto& entry) { return absl::c_linear_search(entry.second.fields, name); });
}

}  // namespace espalier
