#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/recipe/model_index.h"
#include "server/recipe/regex.h"

namespace espalier {

// What one entry of `targets` or `ignore` means. In this order:
//  - `re:` and a regular expression: every name or alias that it matches from the start, and `.weight` of every layer
//    whose name it matches;
//  - __ALL__: every parameter; __ALL_PRUNABLE__: those that count as prunable;
//  - the name or an alias of a parameter; the name of a layer: its `.weight`;
//  - a class name (Linear, Conv1D, Embedding, Conv1d, Conv2d, Conv3d): the weights of such layers, where config.json told
//    the architecture.
// All but exact names pass biases by unless the expression itself speaks of "bias". Not thread-safe.
class TargetPattern {
 public:
  // nullopt with `error` set for one that cannot be read. `model` must outlive it.
  static std::optional<TargetPattern> Parse(absl::string_view text, const ModelIndex& model, std::string& error);

  // Positions of all parameters meant, ascending, biases included; nullopt with `error` set where the expression costs
  // too much.
  std::optional<std::vector<int>> Match(std::string& error) const;

  // Takes biases too.
  bool takes_biases() const { return takes_biases_; }
  // Names one parameter, so that what cannot be pruned is an error and not left out.
  bool exact() const { return kind_ == Kind::kName; }
  bool all_prunable() const { return kind_ == Kind::kAllPrunable; }
  const std::string& text() const { return text_; }

  // Why nothing is matched and what was meant, for a message. Costs a pass over the model.
  std::string WhyNothing(std::string& suggestion) const;

 private:
  enum class Kind { kRegex, kAll, kAllPrunable, kName, kClass, kUnknown };

  bool MatchesClass(const v1::Parameter& parameter) const;

  const ModelIndex* model_ = nullptr;
  std::string text_;
  Kind kind_ = Kind::kUnknown;
  int position_ = -1;  // of kName
  bool takes_biases_ = false;
  std::shared_ptr<const Regex> regex_;
};

// A bias: of that kind, or so called.
bool IsBias(const v1::Parameter& parameter);

}  // namespace espalier
