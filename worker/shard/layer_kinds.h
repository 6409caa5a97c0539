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

// Sets layer_kind, prunable and input_dimension of a parameter whose name, dtype and shape are set.
//  - `.weight` of two dimensions: EMBEDDING where the layer's last name part is a known embedding name (embed_tokens,
//  wte,
//    wpe, word_embeddings, ...; any part containing "embed"), TRANSPOSED_LINEAR for the Conv1D layers of GPT-2 style
//    model types (c_attn, c_proj, c_fc, q_attn; input dimension 0), LINEAR otherwise (input dimension 1).
//  - `.weight` of three to five dimensions: CONV (input dimension 1; a row is the flattened [in, kernel...]).
//  - a tensor of three dimensions without `.weight` whose name has a part `experts`: FUSED_EXPERTS, not prunable, N:M
//    refused, since implementations disagree on which dimension is the input.
//  - one dimension: NORM for `.weight`, BIAS for `.bias`; anything else OTHER.
// prunable: LINEAR, TRANSPOSED_LINEAR, EMBEDDING and CONV of a prunable dtype.
void ClassifyParameter(const ModelHints& hints, v1::Parameter& parameter);

}  // namespace espalier
