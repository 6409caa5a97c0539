#include "server/recipe/target_pattern.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/recipe/problems.h"

namespace espalier {
namespace {

constexpr absl::string_view kRegexPrefix = "re:";
// Class names of torch.nn and transformers; of convolutions with the dimensions of the weight.
struct LayerClass {
  absl::string_view name;
  v1::LayerKind kind;
  int dimensions;
};
constexpr LayerClass kClasses[] = {
    {"Linear", v1::LAYER_KIND_LINEAR, 2},       {"Conv1D", v1::LAYER_KIND_TRANSPOSED_LINEAR, 2},
    {"Embedding", v1::LAYER_KIND_EMBEDDING, 2}, {"Conv1d", v1::LAYER_KIND_CONV, 3},
    {"Conv2d", v1::LAYER_KIND_CONV, 4},         {"Conv3d", v1::LAYER_KIND_CONV, 5},
};

}  // namespace

bool IsBias(const v1::Parameter& parameter) {
  return parameter.layer_kind() == v1::LAYER_KIND_BIAS || absl::EndsWith(parameter.name(), ".bias");
}

std::optional<TargetPattern> TargetPattern::Parse(absl::string_view text, const ModelIndex& model, std::string& error) {
  TargetPattern out;
  out.model_ = &model;
  out.text_ = std::string(text);
  if (absl::ConsumePrefix(&text, kRegexPrefix)) {
    out.kind_ = Kind::kRegex;
    out.takes_biases_ = absl::StrContains(text, "bias");
    out.regex_ = std::make_shared<const Regex>(text, error);
    if (!error.empty()) {
      error = absl::StrCat("the regular expression cannot be read: ", error);
      return std::nullopt;
    }
  } else if (text == "__ALL__") {
    out.kind_ = Kind::kAll;
  } else if (text == "__ALL_PRUNABLE__") {
    out.kind_ = Kind::kAllPrunable;
  } else if (absl::StartsWith(text, "__")) {
    error = "there is no such token; there are `__ALL__` and `__ALL_PRUNABLE__`";
    return std::nullopt;
  } else if (out.position_ = model.Find(text); out.position_ >= 0) {
    out.kind_ = Kind::kName;
    out.takes_biases_ = true;
  } else if (out.position_ = model.Find(absl::StrCat(text, ".weight")); out.position_ >= 0) {
    out.kind_ = Kind::kName;
  } else if (absl::c_any_of(kClasses, [&](const LayerClass& entry) { return entry.name == text; })) {
    out.kind_ = Kind::kClass;
  }
  return out;
}

bool TargetPattern::MatchesClass(const v1::Parameter& parameter) const {
  return absl::c_any_of(kClasses, [&](const LayerClass& entry) {
    return entry.name == text_ && entry.kind == parameter.layer_kind() && entry.dimensions == parameter.shape_size();
  });
}

std::optional<std::vector<int>> TargetPattern::Match(std::string& error) const {
  std::vector<int> out;
  if (kind_ == Kind::kName) {
    out.push_back(position_);
    return out;
  }
  if (kind_ == Kind::kUnknown || (kind_ == Kind::kClass && model_->model().architecture().empty())) return out;
  for (int i = 0; i < model_->size(); ++i) {
    const v1::Parameter& parameter = model_->at(i);
    bool takes = kind_ == Kind::kAll || (kind_ == Kind::kAllPrunable && parameter.prunable()) ||
                 (kind_ == Kind::kClass && MatchesClass(parameter));
    if (kind_ == Kind::kRegex) {
      for (const absl::string_view name : model_->NamesOf(i)) {
        const absl::string_view module = ModuleOf(name);
        Regex::Result result = regex_->Match(name);
        if (result == Regex::Result::kNo && !module.empty()) result = regex_->Match(module);
        if (result == Regex::Result::kTooCostly) {
          error = absl::StrCat("the regular expression needs too many steps on ", Quote(name), "; write a simpler one");
          return std::nullopt;
        }
        takes = takes || result == Regex::Result::kYes;
      }
    }
    if (takes) out.push_back(i);
  }
  return out;
}

std::string TargetPattern::WhyNothing(std::string& suggestion) const {
  if (kind_ == Kind::kClass) {
    return model_->model().architecture().empty()
               ? "class names need the architecture that config.json tells, and this model has none; use `re:`"
               : "no layer of the model is of this class";
  }
  if (kind_ == Kind::kRegex) {
    const std::string unanchored = absl::StrCat(kRegexPrefix, ".*", absl::StripPrefix(text_, kRegexPrefix));
    std::string error;
    const auto pattern = Parse(unanchored, *model_, error);
    const auto found = pattern ? pattern->Match(error) : std::nullopt;
    if (found && !found->empty()) suggestion = unanchored;
    return "matches no parameter of the model; expressions are anchored at the start of the name";
  }
  if (kind_ == Kind::kUnknown) suggestion = model_->Nearest(text_);
  return "matches no parameter of the model";
}

}  // namespace espalier
