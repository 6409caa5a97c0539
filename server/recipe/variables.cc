#include "server/recipe/variables.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/recipe/expression.h"

namespace espalier {
namespace {

constexpr absl::string_view kEval = "eval(";
// Text grows by inserted values; no field needs more.
constexpr size_t kMaxText = 100'000;

// Position of the next `eval(` that is a word of its own.
size_t FindEval(absl::string_view text, size_t from) {
  for (size_t at = text.find(kEval, from); at != absl::string_view::npos; at = text.find(kEval, at + 1)) {
    const bool word =
        at == 0 || (!absl::ascii_isalnum(static_cast<unsigned char>(text[at - 1])) && text[at - 1] != '_');
    if (word) return at;
  }
  return absl::string_view::npos;
}

// Position after the parenthesis that closes the one before `from`; npos without.
size_t FindClose(absl::string_view text, size_t from) {
  int open = 1;
  for (size_t i = from; i < text.size(); ++i) {
    if (text[i] == '(') ++open;
    if (text[i] == ')' && --open == 0) return i + 1;
  }
  return absl::string_view::npos;
}

}  // namespace

bool Variables::Define(const std::string& name, const YamlNode& node) {
  Variable variable;
  variable.node = &node;
  return variables_.emplace(name, std::move(variable)).second;
}

std::optional<Scalar> Variables::Evaluate(const YamlNode& node, absl::string_view field) {
  if (!node.scalar() || FindEval(node.text, 0) == absl::string_view::npos) return ReadScalar(node);
  return Insert(node, field);
}

std::optional<Scalar> Variables::Insert(const YamlNode& node, absl::string_view field) {
  const std::string stripped(absl::StripAsciiWhitespace(node.text));
  std::string out;
  size_t done = 0;
  for (size_t at = FindEval(stripped, 0); at != absl::string_view::npos; at = FindEval(stripped, done)) {
    const size_t begin = at + kEval.size();
    const size_t end = FindClose(stripped, begin);
    if (end == absl::string_view::npos) {
      problems_.Add(node.mark, field, absl::StrCat("the `eval(` in ", Quote(stripped), " has no closing `)`"));
      return std::nullopt;
    }
    Mistake mistake;
    const std::string expression = stripped.substr(begin, end - 1 - begin);
    std::optional<Scalar> value = EvaluateExpression(expression, *this, mistake);
    if (!value) {
      if (!mistake.what.empty()) {
        problems_.Add(node.mark, field,
                      absl::StrCat("in ", Quote(absl::StrCat("eval(", expression, ")")), ": ", mistake.what),
                      mistake.suggestion);
      }
      return std::nullopt;
    }
    if (at == 0 && end == stripped.size()) return value;
    absl::StrAppend(&out, stripped.substr(done, at - done), value->text);
    done = end;
    if (out.size() > kMaxText) {
      problems_.Add(node.mark, field, "the text grows too long by the values inserted");
      return std::nullopt;
    }
  }
  return Scalar::OfText(out + stripped.substr(done));
}

void Variables::Resolve(const std::string& name, Variable& variable) {
  variable.state = State::kBusy;
  busy_.push_back(name);
  std::optional<Scalar> value = Evaluate(*variable.node, name);
  busy_.pop_back();
  variable.state = value ? State::kDone : State::kFailed;
  if (value) variable.value = *std::move(value);
}

std::optional<Scalar> Variables::Lookup(const std::string& name, std::string& mistake, std::string& suggestion) {
  const auto found = variables_.find(name);
  if (found == variables_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, unused] : variables_) names.push_back(known);
    mistake = absl::StrCat("the variable ", Quote(name), " is not defined");
    suggestion = ClosestName(name, names);
    return std::nullopt;
  }
  Variable& variable = found->second;
  variable.used = true;
  if (variable.state == State::kNew) Resolve(name, variable);
  if (variable.state == State::kBusy) {
    std::vector<std::string> cycle(std::find(busy_.begin(), busy_.end(), name), busy_.end());
    cycle.push_back(name);
    mistake = absl::StrCat("the variable ", Quote(name), " depends on itself (",
                           Shorten(absl::StrJoin(cycle, " -> "), 200), ")");
    return std::nullopt;
  }
  if (variable.state == State::kFailed) return std::nullopt;
  return variable.value;
}

std::vector<std::string> Variables::EvaluateUnused() {
  std::vector<std::string> unused;
  for (auto& [name, variable] : variables_) {
    if (variable.state == State::kNew) Resolve(name, variable);
  }
  for (const auto& [name, variable] : variables_) {
    if (!variable.used) unused.push_back(name);
  }
  return unused;
}

}  // namespace espalier
