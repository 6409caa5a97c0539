#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/recipe/scalar.h"
#include "server/recipe/variables.h"

namespace espalier {

inline constexpr size_t kMaxExpressionLength = 1000;
inline constexpr int kMaxExpressionDepth = 100;
// All operations of a recipe together.
inline constexpr int kMaxOperations = 20'000;

// Why an expression has no value. `what` is empty when the cause is reported elsewhere.
struct Mistake {
  std::string what;
  std::string suggestion;
};

// Evaluates arithmetic: + - * / // % ** with Python's precedence and rounding, parentheses, min max abs round floor
// ceil, numbers and variables; eval(...) is a pair of parentheses. Exact throughout. An expression that is a variable
// alone has that variable's value, whatever its type. nullopt: see `mistake`.
std::optional<Scalar> EvaluateExpression(absl::string_view text, Variables& variables, Mistake& mistake);

}  // namespace espalier
