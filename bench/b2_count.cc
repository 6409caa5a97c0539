// B2: count the zeros of a shard, and verify it against its mask, each against a streaming read of the same bytes (their
// sum as 64-bit words; verification reads the mask besides the shard), and against LibTorch's count_nonzero where this build has LibTorch. One thread on every side.

#include "bench/measure.h"
#include "bench/shard.h"
#ifdef ESPALIER_BENCH_TORCH
#include "bench/torch_baseline.h"
#endif
#include "worker/mask/kernels.h"

namespace espalier::bench {
namespace {

using Vector = uint64_t __attribute__((vector_size(32)));

// Four independent sums in the widest vectors of this machine: nothing but the memory slows it.
#ifdef __x86_64__
__attribute__((target_clones("avx2", "default")))
#endif
uint64_t
StreamingSum(const void* data, size_t bytes) {
  const std::byte* from = static_cast<const std::byte*>(data);
  Vector sums[4] = {};
  for (size_t i = 0; i + sizeof(sums) <= bytes; i += sizeof(sums)) {
    for (size_t k = 0; k < 4; ++k) {
      Vector words;
      std::memcpy(&words, from + i + k * sizeof(words), sizeof(words));
      sums[k] += words;
    }
  }
  const Vector sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

void Run(v1::Dtype dtype, int64_t count) {
  const std::shared_ptr<Storage> shard = NormalShard(dtype, count);
  const Bitmask mask = HalfMask(count);
  const absl::Span<std::byte> bytes = shard->bytes();
  ApplyMask(dtype, bytes, mask);
  const auto read_shard = [&] { return StreamingSum(bytes.data(), bytes.size()); };
  const auto read_mask = [&] { return StreamingSum(mask.words().data(), mask.words().size() * sizeof(uint64_t)); };
  std::vector<std::function<void()>> bodies = {[&] { Use(read_shard()); }, [&] { Use(CountZeros(dtype, bytes)); },
                                               [&] { Use(read_shard() + read_mask()); },
                                               [&] { Use(VerifyMask(dtype, bytes, mask)); }};
#ifdef ESPALIER_BENCH_TORCH
  const std::function<int64_t()> count_nonzero = TorchCountNonzero(dtype, shard);
  bodies.emplace_back([&] { Use(count_nonzero()); });
#endif
  const std::vector<double> seconds = MedianSeconds(bodies);
  const std::string what = DtypeName(dtype) + "-" + std::to_string(bytes.size() >> 20) + "MiB";
  PrintRatio("B2", "count-" + what + "-vs-read", seconds[0], seconds[1], 0.9);
  PrintRatio("B2", "verify-" + what + "-vs-read", seconds[2], seconds[3], 0.9);
#ifdef ESPALIER_BENCH_TORCH
  PrintRatio("B2", "count-" + what + "-vs-torch", seconds[4], seconds[1], 3);
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
