#include "bench/torch_baseline.h"

#include <ATen/Parallel.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>

namespace espalier::bench {
namespace {

at::Tensor AsTensor(v1::Dtype dtype, const std::shared_ptr<Storage>& shard) {
  at::set_num_threads(1);
  const at::ScalarType type = dtype == v1::DTYPE_F32 ? at::kFloat : at::kBFloat16;
  const int64_t count = static_cast<int64_t>(shard->bytes().size() / at::elementSize(type));
  // The tensor lives no longer than the closure that holds the shard.
  return at::from_blob(shard->bytes().data(), {count}, type);
}

}  // namespace

std::function<void()> TorchMultiply(v1::Dtype dtype, const std::shared_ptr<Storage>& shard, const Bitmask& mask) {
  at::Tensor bools = at::empty({mask.size()}, at::kBool);
  for (int64_t i = 0; i < mask.size(); ++i) bools.mutable_data_ptr<bool>()[i] = mask.Keeps(i);
  return [weight = AsTensor(dtype, shard), bools, shard] {
    const at::Tensor masked = at::mul(weight, bools);
    asm volatile("" : : "r"(masked.const_data_ptr()) : "memory");  // somebody looks at it
  };
}

std::function<int64_t()> TorchCountNonzero(v1::Dtype dtype, const std::shared_ptr<Storage>& shard) {
  return [weight = AsTensor(dtype, shard), shard] { return at::count_nonzero(weight).item<int64_t>(); };
}

}  // namespace espalier::bench
