#include "worker/checkpoint/model_config.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/strict_json.h"

namespace espalier {
namespace {

// The text with NaN and Infinity outside of strings replaced by 0.
std::string WithoutPythonNumbers(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) out.push_back(text[i++]);
    bool replaced = false;
    for (const absl::string_view word : {"NaN", "Infinity"}) {
      if (in_string || !absl::StartsWith(text.substr(i), word)) continue;
      out.push_back('0');
      i += word.size() - 1;
      replaced = true;
      break;
    }
    if (!replaced) out.push_back(text[i]);
  }
  return out;
}

std::string StringAt(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

bool BoolAt(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_boolean() && it->get<bool>();
}

int64_t NumberAt(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number_unsigned() ? std::max<int64_t>(it->get<int64_t>(), 0) : 0;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, absl::string_view file) {
  ESPALIER_ASSIGN_OR_RETURN(const nlohmann::json json, ParseStrictJson(WithoutPythonNumbers(text), file));
  ModelConfig config;
  config.hints.model_type = StringAt(json, "model_type");
  const auto architectures = json.find("architectures");
  if (architectures != json.end() && architectures->is_array() && !architectures->empty() &&
      architectures->front().is_string()) {
    config.hints.architecture = architectures->front().get<std::string>();
  }
  const auto text_config = json.find("text_config");
  config.tie_word_embeddings =
      BoolAt(json, "tie_word_embeddings") ||
      (text_config != json.end() && text_config->is_object() && BoolAt(*text_config, "tie_word_embeddings"));
  config.vocab_size = NumberAt(json, "vocab_size");
  if (config.vocab_size == 0 && text_config != json.end() && text_config->is_object()) {
    config.vocab_size = NumberAt(*text_config, "vocab_size");
  }
  return config;
}

}  // namespace espalier
