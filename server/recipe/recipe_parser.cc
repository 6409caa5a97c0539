#include "server/recipe/recipe_parser.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/recipe/field_reader.h"
#include "server/recipe/modifier_parser.h"
#include "server/recipe/modifier_schema.h"
#include "server/recipe/variables.h"
#include "server/recipe/yaml_node.h"
#include "server/recipe/yaml_reader.h"

namespace espalier {
namespace {

constexpr absl::string_view kStageSuffix = "_stage";
constexpr absl::string_view kGroupSuffix = "_modifiers";
constexpr char kImplicitStage[] = "default_stage";

bool IsGroup(absl::string_view key) {
  return key == "modifiers" || absl::EndsWith(key, kGroupSuffix);
}

bool IsModifierType(absl::string_view key) {
  return FindModifierSchema(key) != nullptr || !WhyForeignModifier(key).empty();
}

// Reads one recipe; one object a recipe.
class Parser {
 public:
  Parser(v1::RunType default_run_type, Problems& problems)
      : default_run_type_(default_run_type), problems_(problems), variables_(problems) {}

  Recipe Run(const YamlNode& root) {
    // Variables first, wherever they stand: a stage may use one that comes after it.
    for (size_t i = 0; i < root.keys.size(); ++i) Variable(root.keys[i], root.key_marks[i], root.children[i]);
    for (size_t i = 0; i < root.keys.size(); ++i) TopLevel(root.keys[i], root.key_marks[i], root.children[i]);
    ImplicitStage(root);
    if (recipe_.stages.empty() && problems_.empty()) {
      problems_.Add(
          root.mark, "",
          "has no stage; write `<name>_stage:` with `<group>_modifiers:` below it, or modifiers at top level");
    }
    UnusedVariables();
    return std::move(recipe_);
  }

 private:
  void Variable(const std::string& key, Mark mark, const YamlNode& value) {
    if (key == "args" && value.mapping()) {
      for (size_t i = 0; i < value.keys.size(); ++i) Define(value.keys[i], value.key_marks[i], value.children[i]);
    } else if (value.scalar() && key != "run_type") {
      Define(key, mark, value);
    }
  }

  void Define(const std::string& name, Mark mark, const YamlNode& value) {
    if (!value.scalar()) {
      problems_.Add(value.mark, name, absl::StrCat("a variable is a single value, not ", value.KindName()));
    } else if (!variables_.Define(name, value)) {
      problems_.Add(mark, name, "this variable is defined twice");
    }
  }

  void TopLevel(const std::string& key, Mark mark, const YamlNode& value) {
    if (absl::EndsWith(key, kStageSuffix) && !value.scalar()) {
      Stage(key, key, mark, value);
    } else if (key == "stages") {
      Stages(mark, value);
    } else if (IsGroup(key) || IsModifierType(key)) {
      implicit_.push_back(key);
    } else if (key == "metadata" || key == "args" || value.scalar() || value.kind == YamlNode::Kind::kNull) {
      // Variables, and what people note about a recipe.
    } else if (IsModifierField(key)) {
      problems_.Add(mark, key, "is a field of modifiers and has no effect here; move it into each modifier");
    } else {
      problems_.Add(mark, key,
                    absl::StrCat("is ", value.KindName(),
                                 " and none of: a stage (its name ends in `_stage`), `stages`, "
                                 "`modifiers` or `<group>_modifiers`, a modifier, `args`, `metadata`"),
                    Nearest(key));
    }
  }

  static std::string Nearest(const std::string& key) {
    std::vector<std::string> names = ModifierTypes();
    for (const char* name : {"stages", "modifiers", "metadata", "args"}) names.emplace_back(name);
    std::string nearest = ClosestName(key, names);
    const size_t at = key.rfind('_');
    if (nearest.empty() && at != std::string::npos &&
        !ClosestName(key.substr(at), {std::string(kStageSuffix)}).empty()) {
      nearest = absl::StrCat(key.substr(0, at), kStageSuffix);
    }
    return nearest;
  }

  void Stages(Mark mark, const YamlNode& value) {
    if (!value.mapping() || value.keys.empty()) {
      problems_.Add(mark, "stages",
                    absl::StrCat("must be a mapping from names to stages, not ",
                                 value.mapping() ? "an empty one" : value.KindName()));
      return;
    }
    for (size_t i = 0; i < value.keys.size(); ++i) {
      Stage(value.keys[i], absl::StrCat("stages.", value.keys[i]), value.key_marks[i], value.children[i]);
    }
  }

  // Opens a stage; nullptr when its name is taken.
  RecipeStage* NewStage(const std::string& name, const std::string& field, Mark mark, const YamlNode& value) {
    RecipeStage stage;
    stage.name = name;
    stage.field = field;
    stage.mark = mark;
    if (!names_.insert(name).second) {
      problems_.Add(mark, field, "there is a stage of this name already");
      return nullptr;
    }
    FieldReader fields(value, field == kImplicitStage ? "" : field, variables_, problems_);
    const std::vector<std::string> run_types = {"oneshot", "train"};
    if (fields.Has("run_type")) {
      const auto run_type = fields.Choice("run_type", run_types);
      stage.run_type = run_type == "train" ? v1::RUN_TYPE_TRAIN : v1::RUN_TYPE_ONESHOT;
    } else {
      stage.run_type = default_run_type_;
      stage.run_type_inferred = true;
    }
    recipe_.stages.push_back(std::move(stage));
    return &recipe_.stages.back();
  }

  void Stage(const std::string& name, const std::string& field, Mark mark, const YamlNode& value) {
    if (!value.mapping()) {
      problems_.Add(mark, field, absl::StrCat("a stage is a mapping, not ", value.KindName()));
      return;
    }
    RecipeStage* stage = NewStage(name, field, mark, value);
    if (stage == nullptr) return;
    bool groups = false;
    for (size_t i = 0; i < value.keys.size(); ++i) {
      const std::string& key = value.keys[i];
      const std::string path = absl::StrCat(field, ".", key);
      if (IsGroup(key)) {
        Group(*stage, path, value.key_marks[i], value.children[i]);
        groups = true;
      } else if (IsModifierType(key)) {
        problems_.Add(value.key_marks[i], path, "a modifier of a stage stands in a group; write `modifiers:` above it");
        groups = true;
      } else if (key != "run_type") {
        problems_.Add(value.key_marks[i], path,
                      "is not a field of a stage, which has `run_type` and `<group>_modifiers`",
                      ClosestName(key, {"run_type", "modifiers"}));
        groups = groups || absl::StrContains(key, "modif");
      }
    }
    if (!groups) problems_.Add(mark, field, "the stage is empty: it has no `<group>_modifiers`");
  }

  void ImplicitStage(const YamlNode& root) {
    const YamlNode* run_type = root.Find("run_type");
    if (implicit_.empty()) {
      if (run_type != nullptr) problems_.Add(run_type->mark, "run_type", "stands at top level; move it into a stage");
      return;
    }
    if (!recipe_.stages.empty()) {
      problems_.Add(root.Find(implicit_.front())->mark, implicit_.front(),
                    "modifiers stand both in stages and at top level; move these into a stage");
      return;
    }
    RecipeStage* stage = NewStage(kImplicitStage, kImplicitStage, root.mark, root);
    for (size_t i = 0; i < root.keys.size(); ++i) {
      const std::string& key = root.keys[i];
      if (IsGroup(key)) {
        Group(*stage, key, root.key_marks[i], root.children[i]);
      } else if (IsModifierType(key)) {
        Modifier(*stage, key, key, root.key_marks[i], root.children[i]);
      }
    }
  }

  void Group(RecipeStage& stage, const std::string& field, Mark mark, const YamlNode& value) {
    if ((!value.mapping() && !value.sequence()) || value.children.empty()) {
      problems_.Add(mark, field, "the group is empty: it must be a mapping or a list of modifiers");
      return;
    }
    if (value.mapping()) {
      GroupEntries(stage, field, value);
      return;
    }
    for (size_t i = 0; i < value.children.size(); ++i) {
      const YamlNode& item = value.children[i];
      const std::string path = absl::StrCat(field, "[", i, "]");
      if (item.mapping() && item.keys.size() == 1) {
        GroupEntries(stage, path, item);
      } else {
        problems_.Add(item.mark, path,
                      "an entry of a list of modifiers is one modifier's name with its fields below it");
      }
    }
  }

  void GroupEntries(RecipeStage& stage, const std::string& field, const YamlNode& value) {
    for (size_t i = 0; i < value.keys.size(); ++i) {
      Modifier(stage, value.keys[i], absl::StrCat(field, ".", value.keys[i]), value.key_marks[i], value.children[i]);
    }
  }

  void Modifier(RecipeStage& stage, const std::string& type, const std::string& field, Mark mark,
                const YamlNode& value) {
    if (FindModifierSchema(type) == nullptr) {
      const absl::string_view why = WhyForeignModifier(type);
      problems_.Add(mark, field, why.empty() ? "there is no modifier of this name" : why,
                    why.empty() ? ClosestName(type, ModifierTypes()) : "");
    } else if (!value.mapping()) {
      problems_.Add(mark, field, absl::StrCat("a modifier is a mapping of fields, not ", value.KindName()));
    } else if (++modifiers_ > kMaxModifiers) {
      if (modifiers_ == kMaxModifiers + 1) {
        problems_.Add(mark, field, absl::StrCat("the recipe has more than ", kMaxModifiers, " modifiers"));
      }
    } else {
      const ModifierPlace place{type, mark, field, stage.run_type, stage.run_type_inferred};
      stage.modifiers.push_back(ParseModifier(place, value, variables_, problems_, recipe_.warnings));
    }
  }

  void UnusedVariables() {
    for (const std::string& name : variables_.EvaluateUnused()) {
      const Mark mark = variables_.MarkOf(name);
      if (IsModifierField(name)) {
        problems_.Add(mark, name,
                      absl::StrCat("has no effect at top level, where it only is a variable that nothing uses; move it "
                                   "into the modifier, or use it there as eval(",
                                   name, ")"));
      } else if (name != "version") {
        recipe_.warnings.push_back(
            absl::StrCat(mark.line, ":", mark.column, ": the variable ", Quote(name), " is not used"));
      }
    }
  }

  const v1::RunType default_run_type_;
  Problems& problems_;
  Variables variables_;
  Recipe recipe_;
  absl::flat_hash_set<std::string> names_;
  std::vector<std::string> implicit_;  // top-level keys that are modifiers or groups of them
  size_t modifiers_ = 0;
};

}  // namespace

std::optional<Recipe> ParseRecipe(absl::string_view text, v1::RunType default_run_type, Problems& problems) {
  const std::optional<YamlNode> root = ReadYaml(text, problems);
  if (!root) return std::nullopt;
  if (!root->mapping() || root->keys.empty()) {
    problems.Add(root->mark, "",
                 absl::StrCat("a recipe is a mapping of stages and variables, not ",
                              root->mapping() ? "an empty one" : root->KindName()));
    return std::nullopt;
  }
  Recipe recipe = Parser(default_run_type, problems).Run(*root);
  if (!problems.empty()) return std::nullopt;
  return recipe;
}

}  // namespace espalier
