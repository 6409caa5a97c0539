#pragma once

// The one table that decides what a parameter is, from its name, its shape and config.json. `prunable` in reports, the
// direction of N:M groups and what `Linear` means as a target all follow from it.

#include <string>

#include "absl/strings/string_view.h"
#include "espalier/v1/model.pb.h"

namespace espalier {

// What config.json says, as far as the table needs it. Empty strings without config.json.
struct ModelHints {
  std::string architecture;  // first of `architectures`, e.g. LlamaForCausalLM
  std::string model_type;    // e.g. llama, gpt2
};

// Sets layer_kind, prunable and input_dimension of a parameter whose name, dtype and shape are set. "Layer" is the last
// part of the name before `.weight`.
//  - `.weight` of two dimensions: NORM where the layer is called a norm (per-head norms have two); EMBEDDING where it is
//    a known embedding (wte, wpe, shared, ...; any name containing "embed" but for known output heads; input dimension
//    1, the hidden one); TRANSPOSED_LINEAR for the Conv1D layers of GPT-2 style model types (c_attn, c_proj, c_fc,
//    q_attn; input dimension 0); LINEAR otherwise (input dimension 1; unknown for those names without a model type).
//  - `.weight` of three to five dimensions: CONV (input dimension 1; a row is the flattened [in, kernel...]), but
//    FUSED_EXPERTS for three dimensions below a name part `experts` or one containing "moe".
//  - a tensor of three dimensions without `.weight` whose name has a part `experts`: FUSED_EXPERTS.
//  - one dimension: NORM for `.weight`, BIAS for `.bias`; anything else OTHER.
// prunable: LINEAR, TRANSPOSED_LINEAR, EMBEDDING and CONV of a prunable dtype. FUSED_EXPERTS are not, and their input
// dimension is unknown, so that N:M is refused: implementations disagree on which dimension is the input.
void ClassifyParameter(const ModelHints& hints, v1::Parameter& parameter);

}  // namespace espalier
