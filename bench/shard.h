#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>

#include "espalier/v1/model.pb.h"
#include "worker/mask/bitmask.h"
#include "worker/shard/dtype.h"
#include "worker/shard/storage.h"

namespace espalier::bench {

// A shard of normally distributed weights, F32 or BF16.
inline std::shared_ptr<Storage> NormalShard(v1::Dtype dtype, int64_t count, uint64_t seed = 1) {
  const std::shared_ptr<Storage> storage = Storage::Allocate(count * DtypeSize(dtype)).value();
  std::byte* out = storage->bytes().data();
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(random);
    if (dtype == v1::DTYPE_F32) {
      std::memcpy(out + i * 4, &value, 4);
    } else {  // BF16: the upper half
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      const uint16_t half = static_cast<uint16_t>(bits >> 16);
      std::memcpy(out + i * 2, &half, 2);
    }
  }
  return storage;
}

// Prunes each element with probability one half.
inline Bitmask HalfMask(int64_t count, uint64_t seed = 2) {
  std::mt19937_64 random(seed);
  Bitmask mask(count);
  for (uint64_t& word : mask.words()) word &= random();
  return mask;
}

}  // namespace espalier::bench
