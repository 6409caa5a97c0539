#include "worker/shard/layer_kinds.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

// Embedding layers whose name does not say so.
constexpr std::array<absl::string_view, 5> kEmbeddings = {"wte", "wpe", "shared", "relative_attention_bias", "tok_emb"};
// Linear layers whose name says "embed": output heads and projections.
constexpr std::array<absl::string_view, 3> kEmbedLinears = {"embed_out", "embedding_hidden_mapping_in",
                                                            "embeddings_project"};
// Layers that GPT-2 stores as Conv1D, [in, out] ...
constexpr std::array<absl::string_view, 4> kConv1dLayers = {"c_attn", "c_proj", "c_fc", "q_attn"};
// ... and the model types that do. Others use the same names for ordinary linear layers (gpt_bigcode, starcoder2, qwen).
constexpr std::array<absl::string_view, 4> kConv1dModels = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"};

constexpr int kUnknownInput = -1;

struct Kind {
  v1::LayerKind kind;
  int input_dimension = kUnknownInput;
};

bool IsNormName(absl::string_view layer) {
  const std::string lower = absl::AsciiStrToLower(layer);
  return absl::StrContains(lower, "norm") || absl::StartsWith(lower, "ln_");
}

bool IsEmbeddingName(absl::string_view layer) {
  if (absl::c_linear_search(kEmbedLinears, layer)) return false;
  return absl::StrContains(absl::AsciiStrToLower(layer), "embed") || absl::c_linear_search(kEmbeddings, layer);
}

bool IsExpertPart(absl::string_view part) {
  return part == "experts" || absl::StrContains(part, "moe");
}

Kind KindOfMatrix(const ModelHints& hints, absl::string_view layer) {
  // Cohere's per-head norms have a weight of two dimensions.
  if (IsNormName(layer)) return {v1::LAYER_KIND_NORM};
  // Groups run along the hidden dimension, the one that a tied output head multiplies.
  if (IsEmbeddingName(layer)) return {v1::LAYER_KIND_EMBEDDING, 1};
  if (absl::c_linear_search(kConv1dLayers, layer)) {
    if (absl::c_linear_search(kConv1dModels, hints.model_type)) return {v1::LAYER_KIND_TRANSPOSED_LINEAR, 0};
    if (hints.model_type.empty()) return {v1::LAYER_KIND_LINEAR};  // either way round
  }
  return {v1::LAYER_KIND_LINEAR, 1};
}

Kind KindOfWeight(const ModelHints& hints, const std::vector<absl::string_view>& parts, int dimensions) {
  const absl::string_view layer = parts.size() < 2 ? absl::string_view() : parts[parts.size() - 2];
  if (dimensions == 1) return {v1::LAYER_KIND_NORM};
  if (dimensions == 2) return KindOfMatrix(hints, layer);
  if (dimensions == 3 && absl::c_any_of(parts, IsExpertPart)) return {v1::LAYER_KIND_FUSED_EXPERTS};
  if (dimensions >= 3 && dimensions <= 5) return {v1::LAYER_KIND_CONV, 1};
  return {v1::LAYER_KIND_OTHER};
}

Kind KindOf(const ModelHints& hints, const v1::Parameter& parameter) {
  const std::vector<absl::string_view> parts = absl::StrSplit(parameter.name(), '.');
  const int dimensions = parameter.shape_size();
  if (parts.back() == "weight") return KindOfWeight(hints, parts, dimensions);
  if (parts.back() == "bias" && dimensions == 1) return {v1::LAYER_KIND_BIAS};
  if (dimensions == 3 && absl::c_linear_search(parts, "experts")) return {v1::LAYER_KIND_FUSED_EXPERTS};
  return {v1::LAYER_KIND_OTHER};
}

bool CountsAsPrunable(v1::LayerKind kind) {
  return kind == v1::LAYER_KIND_LINEAR || kind == v1::LAYER_KIND_TRANSPOSED_LINEAR ||
         kind == v1::LAYER_KIND_EMBEDDING || kind == v1::LAYER_KIND_CONV;
}

}  // namespace

void ClassifyParameter(const ModelHints& hints, v1::Parameter& parameter) {
  const Kind kind = KindOf(hints, parameter);
  parameter.set_layer_kind(kind.kind);
  parameter.set_input_dimension(kind.input_dimension);
  parameter.set_prunable(CountsAsPrunable(kind.kind) && IsPrunableDtype(parameter.dtype()));
}

}  // namespace espalier
