#include "server/recipe/field_reader.h"

#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace espalier {
namespace {

// Beyond this no training has steps, and sums of steps stay far inside int64.
constexpr int64_t kMaxSteps = int64_t{1} << 50;

// What other tools call our fields.
const std::map<std::string, std::string, std::less<>>& ForeignNames() {
  static const auto* names = new std::map<std::string, std::string, std::less<>>{
      {"params", "targets"},
      {"layers", "targets"},
      {"exclude", "ignore"},
      {"amount", "final_sparsity"},
      {"start_epoch", "start"},
      {"end_epoch", "end"},
      {"inter_func", "update_scheduler"},
      {"mask_type", "mask_structure"},
      {"pattern", "mask_structure"},
      {"global_sparsity", "apply_globally"},
      {"percdamp", "dampening_frac"},
  };
  return *names;
}

// "0,5" was meant as 0.5.
std::string WithDot(const Scalar& value) {
  const std::string dotted = absl::StrReplaceAll(value.text, {{",", "."}});
  return dotted != value.text && Rational::Parse(dotted) ? dotted : "";
}

std::optional<int64_t> ParseSteps(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (!absl::ConsumeSuffix(&text, "steps") && !absl::ConsumeSuffix(&text, "step")) return std::nullopt;
  text = absl::StripAsciiWhitespace(text);
  int64_t steps = 0;
  const bool digits = !text.empty() && absl::c_all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || !absl::SimpleAtoi(text, &steps) || steps > kMaxSteps) return std::nullopt;
  return steps;
}

}  // namespace

const YamlNode* FieldReader::Find(absl::string_view name) const {
  const YamlNode* value = node_.Find(name);
  return value == nullptr || value->kind == YamlNode::Kind::kNull ? nullptr : value;
}

Mark FieldReader::MarkOf(absl::string_view name) const {
  const YamlNode* value = Find(name);
  return value == nullptr ? node_.mark : value->mark;
}

std::string FieldReader::FieldOf(absl::string_view name) const {
  return path_.empty() ? std::string(name) : absl::StrCat(path_, ".", name);
}

std::optional<Scalar> FieldReader::ScalarOf(const YamlNode& node, const std::string& field, absl::string_view wanted) {
  if (node.sequence() || node.mapping()) {
    problems_.Add(node.mark, field, absl::StrCat("must be ", wanted, ", not ", node.KindName()));
    return std::nullopt;
  }
  std::optional<Scalar> value = variables_.Evaluate(node, field);
  if (value && value->kind == Scalar::Kind::kNull) {
    problems_.Add(node.mark, field, absl::StrCat("must be ", wanted, ", and is empty"));
    return std::nullopt;
  }
  return value;
}

std::optional<Rational> FieldReader::NumberOf(const YamlNode& node, const std::string& field) {
  const std::optional<Scalar> value = ScalarOf(node, field, "a number");
  if (!value) return std::nullopt;
  if (value->kind == Scalar::Kind::kNumber) return value->number;
  std::string what = absl::StrCat("must be a number, not ", value->Describe());
  std::string suggestion = WithDot(*value);
  if (value->quoted && Rational::Parse(value->text)) {
    absl::StrAppend(&what, "; write it without quotes");
  }
  problems_.Add(node.mark, field, what, suggestion);
  return std::nullopt;
}

std::optional<std::string> FieldReader::TextOf(const YamlNode& node, const std::string& field) {
  std::optional<Scalar> value = ScalarOf(node, field, "text");
  if (!value) return std::nullopt;
  if (value->kind != Scalar::Kind::kText) {
    problems_.Add(node.mark, field, absl::StrCat("must be text, not ", value->Describe()));
    return std::nullopt;
  }
  if (value->text.empty()) {
    problems_.Add(node.mark, field, "is empty text");
    return std::nullopt;
  }
  return std::move(value->text);
}

std::optional<Rational> FieldReader::SparsityOf(const YamlNode& node, const std::string& field) {
  const std::optional<Rational> value = NumberOf(node, field);
  if (!value) return std::nullopt;
  if (value->sign() >= 0 && *value <= Rational(1)) {
    // A third has no decimal; every platform must cut it at the same place.
    return value->IsDecimal() ? *value : value->Round(Rational::kPlaces);
  }
  std::string suggestion;
  if (*value >= Rational(2) && *value <= Rational(100)) suggestion = Rational::Divide(*value, 100)->ToString();
  problems_.Add(node.mark, field,
                absl::StrCat("is ", Shorten(value->ToString(), 40),
                             ", and a sparsity is the share of weights that become zero, from 0 to 1"),
                suggestion);
  return std::nullopt;
}

std::optional<RecipeTime> FieldReader::TimeOf(const YamlNode& node, const std::string& field, bool may_be_open) {
  const std::optional<Scalar> value = ScalarOf(node, field, "a time");
  if (!value) return std::nullopt;
  RecipeTime out;
  out.mark = node.mark;
  out.field = field;
  if (value->kind == Scalar::Kind::kText) {
    if (const std::optional<int64_t> steps = ParseSteps(value->text)) {
      out.unit = RecipeTime::Unit::kSteps;
      out.value = Rational(*steps);
      return out;
    }
  }
  if (value->kind != Scalar::Kind::kNumber) {
    problems_.Add(node.mark, field,
                  absl::StrCat("must be epochs as a number, or steps as \"120steps\", not ", value->Describe()),
                  WithDot(*value));
    return std::nullopt;
  }
  out.value = value->number;
  if (out.value.sign() >= 0) return out;
  out.open = out.value == Rational(-1);
  if (out.open && may_be_open) return out;
  problems_.Add(node.mark, field, absl::StrCat("is ", Shorten(out.value.ToString(), 40), ", and must not be negative"));
  return std::nullopt;
}

std::optional<Rational> FieldReader::Number(absl::string_view name) {
  const YamlNode* node = Find(name);
  return node == nullptr ? std::nullopt : NumberOf(*node, FieldOf(name));
}

std::optional<Rational> FieldReader::Sparsity(absl::string_view name) {
  const YamlNode* node = Find(name);
  return node == nullptr ? std::nullopt : SparsityOf(*node, FieldOf(name));
}

std::optional<int64_t> FieldReader::Whole(absl::string_view name, int64_t least, int64_t most) {
  const std::optional<Rational> value = Number(name);
  if (!value) return std::nullopt;
  const std::optional<int64_t> whole = value->whole() ? value->numerator().ToInt64() : std::nullopt;
  if (whole && *whole >= least && *whole <= most) return whole;
  Add(name,
      absl::StrCat("is ", Shorten(value->ToString(), 40), ", and must be a whole number from ", least, " to ", most));
  return std::nullopt;
}

std::optional<bool> FieldReader::Bool(absl::string_view name) {
  const YamlNode* node = Find(name);
  if (node == nullptr) return std::nullopt;
  const std::optional<Scalar> value = ScalarOf(*node, FieldOf(name), "true or false");
  if (!value) return std::nullopt;
  if (value->kind == Scalar::Kind::kBool) return value->boolean;
  Add(name, absl::StrCat("must be true or false, not ", value->Describe()));
  return std::nullopt;
}

std::optional<std::string> FieldReader::Text(absl::string_view name) {
  const YamlNode* node = Find(name);
  return node == nullptr ? std::nullopt : TextOf(*node, FieldOf(name));
}

std::optional<std::string> FieldReader::Choice(absl::string_view name, const std::vector<std::string>& values) {
  const std::optional<std::string> value = Text(name);
  if (!value || absl::c_linear_search(values, *value)) return value;
  Add(name, absl::StrCat("is ", Quote(*value), ", and must be one of ", absl::StrJoin(values, ", ")),
      ClosestName(*value, values));
  return std::nullopt;
}

std::vector<TargetEntry> FieldReader::Texts(absl::string_view name) {
  std::vector<TargetEntry> out;
  const YamlNode* node = Find(name);
  if (node == nullptr) return out;
  const auto take = [&](const YamlNode& item, std::string field) {
    if (std::optional<std::string> text = TextOf(item, field)) {
      out.push_back({*std::move(text), item.mark, std::move(field)});
    }
  };
  if (!node->sequence()) {
    take(*node, FieldOf(name));
    return out;
  }
  for (size_t i = 0; i < node->children.size(); ++i) {
    take(node->children[i], absl::StrCat(FieldOf(name), "[", i, "]"));
  }
  return out;
}

std::optional<RecipeTime> FieldReader::Time(absl::string_view name, bool may_be_open) {
  const YamlNode* node = Find(name);
  return node == nullptr ? std::nullopt : TimeOf(*node, FieldOf(name), may_be_open);
}

std::vector<std::string> FieldReader::RefuseOthers(const std::vector<std::string>& names, absl::string_view of) {
  std::vector<std::string> suggestions;
  for (size_t i = 0; i < node_.keys.size(); ++i) {
    const std::string& key = node_.keys[i];
    if (absl::c_linear_search(names, key)) continue;
    const auto foreign = ForeignNames().find(key);
    const bool known = foreign != ForeignNames().end() && absl::c_linear_search(names, foreign->second);
    std::string suggestion = known ? foreign->second : ClosestName(key, names);
    problems_.Add(node_.key_marks[i], FieldOf(key), absl::StrCat("is not a field of ", of), suggestion);
    if (!suggestion.empty()) suggestions.push_back(std::move(suggestion));
  }
  return suggestions;
}

}  // namespace espalier
