// B1: apply a packed mask to a shard in one pass, against memcpy of the same bytes (which reads and writes as much), and
// against LibTorch's `weight * mask` with a mask of bools where this build has LibTorch. One thread on every side.

#include <cstring>

#include "bench/measure.h"
#include "bench/shard.h"
#ifdef ESPALIER_BENCH_TORCH
#include "bench/torch_baseline.h"
#endif
#include "worker/mask/kernels.h"

namespace espalier::bench {
namespace {

void Run(v1::Dtype dtype, int64_t count) {
  const std::shared_ptr<Storage> shard = NormalShard(dtype, count);
  const Bitmask mask = HalfMask(count);
  const absl::Span<std::byte> bytes = shard->bytes();
  const std::shared_ptr<Storage> copy = Storage::Allocate(static_cast<int64_t>(bytes.size())).value();
  std::vector<std::function<void()>> bodies = {[&] {
                                                 std::memcpy(copy->bytes().data(), bytes.data(), bytes.size());
                                                 Use(copy->bytes()[0]);
                                               },
                                               [&] { ApplyMask(dtype, bytes, mask); }};
#ifdef ESPALIER_BENCH_TORCH
  const std::function<void()> multiply = TorchMultiply(dtype, shard, mask);
  bodies.push_back(multiply);
#endif
  const std::vector<double> seconds = MedianSeconds(bodies);
  const std::string what = DtypeName(dtype) + "-" + std::to_string(bytes.size() >> 20) + "MiB";
  PrintRatio("B1", "apply-" + what + "-vs-memcpy", seconds[0], seconds[1], 0.9);
#ifdef ESPALIER_BENCH_TORCH
  PrintRatio("B1", "apply-" + what + "-vs-torch", seconds[2], seconds[1], 8);
#endif
}

}  // namespace
}  // namespace espalier::bench

int main() {
  using espalier::bench::Run;
  for (const auto dtype : {espalier::v1::DTYPE_F32, espalier::v1::DTYPE_BF16}) {
    for (const int64_t elements : {int64_t{1} << 24, int64_t{1} << 26}) Run(dtype, elements);
  }
  return 0;
}
