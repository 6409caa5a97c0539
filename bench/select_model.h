#pragma once

// What the benchmarks of selection share: the linears of a checkpoint as a half-pruning update, and the way of a
// program that has no radix select.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "espalier/v1/worker_service.pb.h"
#include "worker/select/select.h"
#include "worker/shard/dtype.h"
#include "worker/shard/shard_table.h"

namespace espalier::bench {

// The update that prunes half of each linear parameter, and this rank's inputs to it. `shards` keeps the values.
struct HalfUpdate {
  explicit HalfUpdate(const ShardTable& shards) {
    spec.set_version(1);
    spec.set_method(v1::SELECTION_METHOD_MAGNITUDE);
    spec.set_rule(v1::SELECTION_RULE_EXACT);
    spec.set_monotone(true);
    for (const std::string& name : shards.names()) {
      const absl::StatusOr<Shard> shard = shards.Lookup(name);
      if (!shard.ok()) std::abort();
      const int64_t count = NumElements(shard->parameter->shape());
      model_bytes += count * DtypeSize(shard->parameter->dtype());
      if (shard->parameter->layer_kind() != v1::LAYER_KIND_LINEAR) continue;
      spec.add_parameters(name);
      spec.add_targets(count / 2);
      elements += count;
      const Storage& storage = *shard->storage;
      inputs.push_back({shard->parameter, shard->range, storage.bytes(), nullptr});
    }
  }

  v1::UpdateSpec spec;
  std::vector<SelectInput> inputs;
  int64_t elements = 0;     // of the full linears
  int64_t model_bytes = 0;  // of all full parameters
};

// The k-th smallest magnitude of BF16 or F32 elements by std::nth_element, the best that the standard library has.
// `work` is scratch memory.
inline uint32_t KthByNthElement(v1::Dtype dtype, absl::Span<const std::byte> bytes, int64_t k,
                                std::vector<uint32_t>& work) {
  const auto kth = [&]<class T>(T mask) {
    const size_t count = bytes.size() / sizeof(T);
    work.resize((bytes.size() + 3) / 4);
    T* const values =
        reinterpret_cast<T*>(work.data());  // of the size of the elements, as a program of one dtype has it
    std::memcpy(values, bytes.data(), bytes.size());
    for (size_t i = 0; i < count; ++i) values[i] &= mask;
    std::nth_element(values, values + (k - 1), values + count);
    return uint32_t{values[k - 1]};
  };
  return dtype == v1::DTYPE_F32 ? kth(uint32_t{0x7fff'ffff}) : kth(uint16_t{0x7fff});
}

}  // namespace espalier::bench
