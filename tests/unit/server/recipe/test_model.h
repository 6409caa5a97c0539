#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "espalier/v1/model.pb.h"

namespace espalier::testing {

// Adds a parameter as a worker would describe it: a linear weight unless told otherwise.
inline v1::Parameter& AddParameter(v1::ModelDescription& model, const std::string& name,
                                   const std::vector<int64_t>& shape, v1::LayerKind kind = v1::LAYER_KIND_LINEAR,
                                   v1::Dtype dtype = v1::DTYPE_BF16) {
  v1::Parameter& parameter = *model.add_parameters();
  parameter.set_name(name);
  for (const int64_t dimension : shape) parameter.add_shape(dimension);
  parameter.set_dtype(dtype);
  parameter.set_layer_kind(kind);
  const bool prunable = kind == v1::LAYER_KIND_LINEAR || kind == v1::LAYER_KIND_EMBEDDING ||
                        kind == v1::LAYER_KIND_CONV || kind == v1::LAYER_KIND_TRANSPOSED_LINEAR;
  parameter.set_prunable(prunable);
  parameter.set_input_dimension(!prunable ? -1 : kind == v1::LAYER_KIND_TRANSPOSED_LINEAR ? 0 : 1);
  return parameter;
}

// Two layers of a small Llama: tied embedding 32 x 8; q_proj 8 x 8 with a bias, up_proj 16 x 8 and a norm of 8 in each
// layer; a buffer of integers. Sorted by name.
inline v1::ModelDescription SmallModel() {
  v1::ModelDescription model;
  model.set_architecture("LlamaForCausalLM");
  model.set_model_type("llama");
  AddParameter(model, "model.embed_tokens.weight", {32, 8}, v1::LAYER_KIND_EMBEDDING).add_aliases("lm_head.weight");
  AddParameter(model, "model.ids", {4}, v1::LAYER_KIND_OTHER, v1::DTYPE_I64);
  for (int i = 0; i < 2; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    AddParameter(model, layer + "mlp.up_proj.weight", {16, 8});
    AddParameter(model, layer + "norm.weight", {8}, v1::LAYER_KIND_NORM);
    AddParameter(model, layer + "self_attn.q_proj.bias", {8}, v1::LAYER_KIND_BIAS);
    AddParameter(model, layer + "self_attn.q_proj.weight", {8, 8});
  }
  return model;
}

}  // namespace espalier::testing
