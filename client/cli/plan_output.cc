#include "client/cli/plan_output.h"

#include <map>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cli/text.h"

namespace espalier::cli {
namespace {

using Json = nlohmann::ordered_json;

// A modifier with what belongs to it.
struct ModifierView {
  const v1::PlannedModifier& modifier;
  std::vector<const v1::PlannedUpdate*> updates;
  std::vector<const v1::Parameter*> parameters;
  int64_t elements = 0;
};

class PlanView {
 public:
  PlanView(const v1::Plan& plan, const v1::ModelDescription& model) {
    std::map<absl::string_view, const v1::Parameter*> by_name;
    for (const v1::Parameter& parameter : model.parameters()) by_name[parameter.name()] = &parameter;
    for (const v1::PlannedModifier& modifier : plan.modifiers()) {
      ModifierView view{modifier, {}, {}, 0};
      for (const std::string& name : modifier.parameters()) {
        const auto it = by_name.find(name);
        if (it == by_name.end()) continue;
        view.parameters.push_back(it->second);
        view.elements += Numel(*it->second);
      }
      modifiers_.push_back(std::move(view));
    }
    for (const v1::PlannedUpdate& update : plan.updates()) {
      modifiers_[static_cast<size_t>(update.modifier())].updates.push_back(&update);
    }
  }

  static int64_t Numel(const v1::Parameter& parameter) {
    int64_t numel = 1;
    for (const int64_t size : parameter.shape()) numel *= size;
    return numel;
  }

  const std::vector<ModifierView>& modifiers() const { return modifiers_; }

 private:
  std::vector<ModifierView> modifiers_;
};

// Elements that an update prunes over all its parameters.
std::optional<int64_t> TargetOf(const v1::PlannedUpdate& update) {
  if (update.targets().empty()) return std::nullopt;
  int64_t sum = 0;
  for (const int64_t target : update.targets()) sum += target;
  return sum;
}

// Elements of parameter `i` that the last update prunes.
std::optional<int64_t> TargetOf(const ModifierView& view, size_t i) {
  if (view.updates.empty()) return std::nullopt;
  const v1::PlannedUpdate& last = *view.updates.back();
  // One entry for several parameters is the total of a global selection.
  if (view.modifier.method() == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE) return std::nullopt;
  if (last.targets_size() != view.modifier.parameters_size()) return std::nullopt;
  return last.targets(static_cast<int>(i));
}

std::string Word(const std::string& name, absl::string_view prefix) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(absl::StripPrefix(name, prefix)), {{"_", " "}});
}

std::string StructureOf(const v1::MaskStructure& structure) {
  return structure.m() == 0 ? "unstructured" : absl::StrCat(structure.n(), ":", structure.m());
}

std::string ShapeOf(const v1::Parameter& parameter) {
  return absl::StrCat("[", absl::StrJoin(parameter.shape(), ", "), "]");
}

Json OrNull(const std::optional<int64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string Indent(const std::string& text, absl::string_view by) {
  std::string out;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    absl::StrAppend(&out, by, text.substr(begin, end - begin), "\n");
    begin = end + 1;
  }
  return out;
}

// ", then b.yaml" of the chained recipes.
std::string Following(const v1::Plan& plan) {
  std::string out;
  for (const v1::RecipeText& text : plan.then()) absl::StrAppend(&out, ", then ", text.recipe_name());
  return out;
}

std::string UpdateText(const ModifierView& view) {
  Table table({">UPDATE", ">STEP", ">SPARSITY", ">PRUNED", ">OF"});
  int number = 0;
  for (const v1::PlannedUpdate* update : view.updates) {
    const auto target = TargetOf(*update);
    table.Add({absl::StrCat(++number), absl::StrCat(update->step()),
               update->sparsity().empty() ? "-" : update->sparsity(), target ? Thousands(*target) : "by the data",
               Thousands(view.elements)});
  }
  return table.Render();
}

std::string ModifierText(const ModifierView& view) {
  const v1::PlannedModifier& modifier = view.modifier;
  std::string out = absl::StrCat(
      "  ", modifier.type(), ": ", Word(v1::SelectionMethod_Name(modifier.method()), "SELECTION_METHOD_"), ", ",
      StructureOf(modifier.structure()), modifier.rule() == v1::SELECTION_RULE_SPARSEML ? ", by SparseML's rule" : "",
      modifier.monotone() ? "" : ", not monotone", "\n\n", Indent(UpdateText(view), "    "), "\n");
  Table table({"PARAMETER", "SHAPE", "DTYPE", ">ELEMENTS", ">PRUNED"});
  for (size_t i = 0; i < view.parameters.size(); ++i) {
    const v1::Parameter& parameter = *view.parameters[i];
    const auto target = TargetOf(view, i);
    table.Add({parameter.name(), ShapeOf(parameter), v1::Dtype_Name(parameter.dtype()).substr(6),
               Thousands(PlanView::Numel(parameter)), target ? Thousands(*target) : "by the data"});
  }
  absl::StrAppend(&out, Indent(table.Render(), "    "));
  if (!modifier.left_out().empty()) {
    Table left({"LEFT OUT", "WHY"});
    for (const v1::LeftOut& entry : modifier.left_out()) left.Add({entry.name(), entry.reason()});
    absl::StrAppend(&out, "\n", Indent(left.Render(), "    "));
  }
  return out;
}

}  // namespace

std::string PlanText(const v1::Plan& plan, const v1::ModelDescription& model, absl::string_view recipe,
                     absl::string_view path) {
  const PlanView view(plan, model);
  std::string out = absl::StrCat(
      "recipe  ", recipe, Following(plan), "\n", "model   ", path,
      model.architecture().empty() ? "" : absl::StrCat(" (", model.architecture(), ")"), ", ",
      Count(plan.model_parameters(), "parameter"), ", ", Thousands(plan.model_elements()), " elements, ",
      Bytes(model.total_bytes()), "\n", "targets ", Count(plan.pruned_parameters(), "parameter"), ", ",
      Thousands(plan.pruned_elements()), " elements (", Percent(plan.pruned_elements(), plan.model_elements()),
      " of the model), in ", Count(plan.updates_size(), "update"), "\n");
  for (int stage = 0; stage < plan.stages_size(); ++stage) {
    const v1::PlannedStage& planned = plan.stages(stage);
    absl::StrAppend(&out, "\n", planned.name(),
                    planned.recipe() == 0 ? "" : absl::StrCat(" of ", plan.then(planned.recipe() - 1).recipe_name()),
                    " (", Word(v1::RunType_Name(planned.run_type()), "RUN_TYPE_"),
                    planned.run_type_inferred() ? ", as the recipe does not say" : "", ")\n");
    for (const ModifierView& modifier : view.modifiers()) {
      if (modifier.modifier.stage() == stage) absl::StrAppend(&out, ModifierText(modifier));
    }
  }
  for (const std::string& warning : plan.warnings()) absl::StrAppend(&out, "\nnote: ", warning);
  for (const std::string& note : model.notes()) absl::StrAppend(&out, "\nnote: ", note);
  if (!plan.warnings().empty() || !model.notes().empty()) absl::StrAppend(&out, "\n");
  return out;
}

Json PlanJson(const v1::Plan& plan, const v1::ModelDescription& model, absl::string_view recipe,
              absl::string_view path) {
  const PlanView view(plan, model);
  Json stages = Json::array();
  for (const v1::PlannedStage& stage : plan.stages()) {
    stages.push_back({{"recipe", stage.recipe()},
                      {"name", stage.name()},
                      {"run_type", Word(v1::RunType_Name(stage.run_type()), "RUN_TYPE_")},
                      {"run_type_inferred", stage.run_type_inferred()},
                      {"modifiers", Json::array()}});
  }
  for (const ModifierView& entry : view.modifiers()) {
    const v1::PlannedModifier& modifier = entry.modifier;
    Json updates = Json::array();
    for (const v1::PlannedUpdate* update : entry.updates) {
      updates.push_back({{"step", update->step()},
                         {"sparsity", update->sparsity().empty() ? Json(nullptr) : Json(update->sparsity())},
                         {"target", OrNull(TargetOf(*update))}});
    }
    Json parameters = Json::array();
    for (size_t i = 0; i < entry.parameters.size(); ++i) {
      const v1::Parameter& parameter = *entry.parameters[i];
      parameters.push_back({{"name", parameter.name()},
                            {"dtype", v1::Dtype_Name(parameter.dtype()).substr(6)},
                            {"shape", std::vector<int64_t>(parameter.shape().begin(), parameter.shape().end())},
                            {"numel", PlanView::Numel(parameter)},
                            {"target", OrNull(TargetOf(entry, i))}});
    }
    Json left_out = Json::array();
    for (const v1::LeftOut& left : modifier.left_out()) {
      left_out.push_back({{"name", left.name()}, {"reason", left.reason()}});
    }
    stages[static_cast<size_t>(modifier.stage())]["modifiers"].push_back(
        {{"type", modifier.type()},
         {"method", Word(v1::SelectionMethod_Name(modifier.method()), "SELECTION_METHOD_")},
         {"rule", modifier.rule() == v1::SELECTION_RULE_SPARSEML ? "sparseml" : "exact"},
         {"structure", StructureOf(modifier.structure())},
         {"monotone", modifier.monotone()},
         {"start_step", modifier.start_step()},
         {"end_step", modifier.end_step()},
         {"updates", std::move(updates)},
         {"parameters", std::move(parameters)},
         {"left_out", std::move(left_out)}});
  }
  std::vector<std::string> warnings(plan.warnings().begin(), plan.warnings().end());
  warnings.insert(warnings.end(), model.notes().begin(), model.notes().end());
  Json then = Json::array();
  for (const v1::RecipeText& text : plan.then()) then.push_back(text.recipe_name());
  return {{"recipe", std::string(recipe)},
          {"then", std::move(then)},
          {"model", std::string(path)},
          {"summary",
           {{"pruned_parameters", plan.pruned_parameters()},
            {"pruned_elements", plan.pruned_elements()},
            {"model_parameters", plan.model_parameters()},
            {"model_elements", plan.model_elements()}}},
          {"stages", std::move(stages)},
          {"warnings", warnings}};
}

}  // namespace espalier::cli
