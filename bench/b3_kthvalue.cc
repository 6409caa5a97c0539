#include "bench/b3_kthvalue.h"

#include <ATen/Parallel.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/kthvalue.h>

namespace espalier::bench {

double KthByTorch(v1::Dtype dtype, absl::Span<const std::byte> bytes, int64_t k) {
  at::set_num_threads(1);
  const at::ScalarType type = dtype == v1::DTYPE_F32 ? at::kFloat : at::kBFloat16;
  const auto count = static_cast<int64_t>(bytes.size() / at::elementSize(type));
  // from_blob has no form for bytes that are only read.
  const at::Tensor weight = at::from_blob(const_cast<std::byte*>(bytes.data()), {count}, type);
  return std::get<0>(at::kthvalue(at::abs(weight), k)).item<double>();
}

}  // namespace espalier::bench
