#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/recipe/problems.h"
#include "server/recipe/scalar.h"
#include "server/recipe/yaml_node.h"

namespace espalier {

// The variables of a recipe, and the values of scalars in which eval(...) stands. Variables are resolved by dependency,
// whatever their order in the text. A scalar that is one eval(...) as a whole has the type of its result; inside other
// text the result is inserted. Nesting (of parentheses and of variables together) and all arithmetic of a recipe are
// bounded. Not thread-safe.
class Variables {
 public:
  explicit Variables(Problems& problems) : problems_(problems) {}

  // `node`, a scalar, must outlive this. False when the name is taken.
  bool Define(const std::string& name, const YamlNode& node);

  // The value of a scalar or null. Mistakes go to the problems, once each, under `field`; nullopt then.
  std::optional<Scalar> Evaluate(const YamlNode& node, absl::string_view field);

  // As an expression sees it: nullopt with `mistake` set where it is not defined, is part of a cycle or nested too
  // deep; nullopt with `mistake` empty where its own text is wrong, which is reported already.
  std::optional<Scalar> Lookup(const std::string& name, std::string& mistake, std::string& suggestion);

  // Evaluates what nobody used, so that its mistakes are found too, and returns those names.
  std::vector<std::string> EvaluateUnused();
  Mark MarkOf(const std::string& name) const { return variables_.at(name).node->mark; }

  // Used by expressions: depth of nesting, and a budget of operations.
  int depth = 0;
  int operations = 0;

 private:
  enum class State { kNew, kBusy, kDone, kFailed };
  struct Variable {
    const YamlNode* node = nullptr;
    State state = State::kNew;
    bool used = false;
    Scalar value;
  };

  void Resolve(const std::string& name, Variable& variable);
  std::optional<Scalar> Insert(const YamlNode& node, absl::string_view field);

  Problems& problems_;
  std::map<std::string, Variable> variables_;
  std::vector<std::string> busy_;  // names being resolved, outermost first
};

}  // namespace espalier
