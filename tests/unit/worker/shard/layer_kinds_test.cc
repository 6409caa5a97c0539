#include "worker/shard/layer_kinds.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

v1::Parameter Classified(const std::string& name, const std::vector<int64_t>& shape,
                         const std::string& model_type = "llama", v1::Dtype dtype = v1::DTYPE_BF16) {
  v1::Parameter parameter;
  parameter.set_name(name);
  parameter.set_dtype(dtype);
  for (const int64_t dimension : shape) parameter.add_shape(dimension);
  ClassifyParameter({.architecture = "", .model_type = model_type}, parameter);
  return parameter;
}

struct Case {
  std::string name;
  std::vector<int64_t> shape;
  std::string model_type;
  v1::LayerKind kind;
  bool prunable;
  int input_dimension;
};

class LayerKindsTest : public ::testing::TestWithParam<Case> {};

TEST_P(LayerKindsTest, Classifies) {
  const v1::Parameter parameter = Classified(GetParam().name, GetParam().shape, GetParam().model_type);
  EXPECT_EQ(parameter.layer_kind(), GetParam().kind) << v1::LayerKind_Name(parameter.layer_kind());
  EXPECT_EQ(parameter.prunable(), GetParam().prunable);
  EXPECT_EQ(parameter.input_dimension(), GetParam().input_dimension);
}

INSTANTIATE_TEST_SUITE_P(
    Names, LayerKindsTest,
    ::testing::Values(
        Case{"model.layers.0.self_attn.q_proj.weight", {8, 8}, "llama", v1::LAYER_KIND_LINEAR, true, 1},
        Case{"lm_head.weight", {32, 8}, "llama", v1::LAYER_KIND_LINEAR, true, 1},
        Case{"weight", {8, 8}, "", v1::LAYER_KIND_LINEAR, true, 1},
        // One expert a tensor: an ordinary linear layer.
        Case{"model.layers.0.block_sparse_moe.experts.3.w1.weight", {8, 8}, "mixtral", v1::LAYER_KIND_LINEAR, true, 1},
        Case{"model.embed_tokens.weight", {32, 8}, "llama", v1::LAYER_KIND_EMBEDDING, true, 1},
        Case{"transformer.wte.weight", {32, 8}, "gpt2", v1::LAYER_KIND_EMBEDDING, true, 1},
        Case{"shared.weight", {32, 8}, "t5", v1::LAYER_KIND_EMBEDDING, true, 1},
        Case{"bert.embeddings.word_embeddings.weight", {32, 8}, "bert", v1::LAYER_KIND_EMBEDDING, true, 1},
        Case{"embed_out.weight", {32, 8}, "gpt_neox", v1::LAYER_KIND_LINEAR, true, 1},
        Case{"time_embedding.linear_1.weight", {8, 8}, "", v1::LAYER_KIND_LINEAR, true, 1},
        // GPT-2 stores [in, out]; others use the same names for [out, in]; without config.json nobody knows.
        Case{"h.0.attn.c_attn.weight", {8, 24}, "gpt2", v1::LAYER_KIND_TRANSPOSED_LINEAR, true, 0},
        Case{"h.0.mlp.c_fc.weight", {8, 32}, "gpt2", v1::LAYER_KIND_TRANSPOSED_LINEAR, true, 0},
        Case{"lm_head.weight", {32, 8}, "gpt2", v1::LAYER_KIND_LINEAR, true, 1},
        Case{"transformer.h.0.attn.c_attn.weight", {10, 8}, "gpt_bigcode", v1::LAYER_KIND_LINEAR, true, 1},
        Case{"h.0.attn.c_attn.weight", {8, 24}, "", v1::LAYER_KIND_LINEAR, true, -1},
        Case{"conv1.weight", {6, 8, 3, 3}, "", v1::LAYER_KIND_CONV, true, 1},
        Case{"mixer.conv1d.weight", {6, 1, 4}, "mamba", v1::LAYER_KIND_CONV, true, 1},
        Case{"patch_embed.proj.weight", {6, 3, 2, 4, 4}, "", v1::LAYER_KIND_CONV, true, 1},
        Case{"model.layers.0.mlp.experts.gate_up_proj", {4, 8, 16}, "gpt_oss", v1::LAYER_KIND_FUSED_EXPERTS, false, -1},
        Case{"model.layers.0.block_sparse_moe.input_linear.weight",
             {4, 16, 8},
             "granitemoe",
             v1::LAYER_KIND_FUSED_EXPERTS,
             false,
             -1},
        Case{"model.norm.weight", {8}, "llama", v1::LAYER_KIND_NORM, false, -1},
        Case{"model.layers.0.self_attn.q_norm.weight", {4, 8}, "cohere", v1::LAYER_KIND_NORM, false, -1},
        Case{"h.0.ln_1.weight", {8}, "gpt2", v1::LAYER_KIND_NORM, false, -1},
        Case{"h.0.ln_1.bias", {8}, "gpt2", v1::LAYER_KIND_BIAS, false, -1},
        Case{"model.layers.0.self_attn.rotary_emb.inv_freq", {4}, "llama", v1::LAYER_KIND_OTHER, false, -1},
        Case{"h.0.attn.bias", {1, 1, 8, 8}, "gpt2", v1::LAYER_KIND_OTHER, false, -1},
        Case{"mixer.A_log", {8, 4}, "mamba", v1::LAYER_KIND_OTHER, false, -1},
        Case{"scale.weight", {}, "", v1::LAYER_KIND_OTHER, false, -1},
        Case{"deep.weight", {1, 1, 1, 1, 1, 1}, "", v1::LAYER_KIND_OTHER, false, -1},
        Case{"proj.qweight", {8, 8}, "", v1::LAYER_KIND_OTHER, false, -1}));

TEST(LayerKindsTest, OnlyPrunableDtypesCount) {
  for (const v1::Dtype dtype : {v1::DTYPE_I64, v1::DTYPE_F8_E4M3, v1::DTYPE_BOOL}) {
    const v1::Parameter parameter = Classified("layer.weight", {8, 8}, "", dtype);
    EXPECT_EQ(parameter.layer_kind(), v1::LAYER_KIND_LINEAR);
    EXPECT_FALSE(parameter.prunable()) << v1::Dtype_Name(dtype);
  }
  EXPECT_TRUE(Classified("layer.weight", {8, 8}, "", v1::DTYPE_F64).prunable());
}

// The founding model: its matrices are prunable, its norms are not.
TEST(LayerKindsTest, FoundingShapeGivesTheFoundingFigures) {
  int64_t total = 0;
  int64_t prunable = 0;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    total += NumElements(shape);
    if (Classified(name, shape).prunable()) prunable += NumElements(shape);
  };
  add("model.embed_tokens.weight", {32000, 288});
  for (int i = 0; i < 6; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      add(layer + ".self_attn." + name + ".weight", {288, 288});
    }
    add(layer + ".mlp.gate_proj.weight", {768, 288});
    add(layer + ".mlp.up_proj.weight", {768, 288});
    add(layer + ".mlp.down_proj.weight", {288, 768});
    add(layer + ".input_layernorm.weight", {288});
    add(layer + ".post_attention_layernorm.weight", {288});
  }
  add("model.norm.weight", {288});
  EXPECT_EQ(total, 15191712);
  EXPECT_EQ(prunable, 15187968);
}

}  // namespace
}  // namespace espalier
