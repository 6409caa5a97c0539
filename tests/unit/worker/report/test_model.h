#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "worker/mask/kernels.h"
#include "worker/mask/mask_table.h"
#include "worker/shard/dtype.h"
#include "worker/shard/layer_kinds.h"
#include "worker/shard/shard_table.h"

namespace espalier::testing {

// A parameter whose `zeros` zeros are spread evenly over it.
struct TestParameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t zeros = 0;
  v1::Dtype dtype = v1::DTYPE_F32;
  bool masked = false;  // with the mask that prunes its zeros
};

inline bool IsZeroAt(const TestParameter& parameter, int64_t i) {
  const int64_t numel = NumElements(parameter.shape);
  return (i + 1) * parameter.zeros / numel != i * parameter.zeros / numel;
}

// One rank's shards and masks of a model.
struct TestRank {
  ShardTable shards;
  MaskTable masks;
};

inline TestRank MakeRank(const std::vector<TestParameter>& model, int rank, int world_size) {
  TestRank made{.shards = ShardTable(rank, world_size), .masks = {}};
  for (const TestParameter& from : model) {
    v1::Parameter parameter;
    parameter.set_name(from.name);
    parameter.set_dtype(from.dtype);
    for (const int64_t dimension : from.shape) parameter.add_shape(dimension);
    ClassifyParameter({}, parameter);
    const ShardRange range = RowShard(from.shape, rank, world_size);
    const int64_t width = DtypeSize(from.dtype);
    const std::shared_ptr<Storage> storage = Storage::Allocate(range.size() * width).value();
    for (int64_t i = range.begin; i < range.end; ++i) {
      if (IsZeroAt(from, i)) continue;
      std::memset(&storage->bytes()[static_cast<size_t>((i - range.begin) * width)], 0x3D, static_cast<size_t>(width));
    }
    if (from.masked) {
      const Bitmask bits = MaskOfZeros(from.dtype, storage->bytes());
      made.masks[from.name] = {.bits = std::make_shared<const Bitmask>(bits), .version = 1, .planned = from.zeros};
    }
    if (!made.shards.Add(parameter, range, storage).ok()) std::abort();
  }
  return made;
}

// stories15M as the first report of its kind counted it.
inline std::vector<TestParameter> FoundingModel() {
  std::vector<TestParameter> model = {{"model.embed_tokens.weight", {32000, 288}}, {"model.norm.weight", {288}}};
  for (int i = 0; i < 6; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      model.push_back(
          {.name = layer + ".self_attn." + name + ".weight", .shape = {288, 288}, .zeros = 41475, .masked = true});
    }
    for (const char* name : {"gate_proj", "up_proj"}) {
      model.push_back(
          {.name = layer + ".mlp." + name + ".weight", .shape = {768, 288}, .zeros = 110595, .masked = true});
    }
    model.push_back({layer + ".mlp.down_proj.weight", {288, 768}});
    model.push_back({layer + ".input_layernorm.weight", {288}});
    model.push_back({layer + ".post_attention_layernorm.weight", {288}});
  }
  return model;
}

}  // namespace espalier::testing
