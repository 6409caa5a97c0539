// GPU: passes over a shard in the memory of a GPU, against a copy of the same bytes within that memory (which reads and writes as
// much), and against the same pass on one core of the CPU. Ours includes the mask's way to the device, where there is one, and
// the result's way back.

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "bench/measure.h"
#include "bench/shard.h"
#include "worker/device/accelerator.h"
#include "worker/device/cuda/cuda_accelerator.h"
#include "worker/mask/kernels.h"
#include "worker/select/kernels.h"

namespace espalier::bench {
namespace {

void CopyWithinDevice(void* to, const void* from, size_t bytes) {
  if (cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess)
    return;
  std::fprintf(stderr, "gpu_passes: the device cannot copy %zu bytes\n", bytes);
  std::exit(1);
}

void AddFirstPass(v1::Dtype dtype, absl::Span<const std::byte> bytes) {
  const Magnitudes values{dtype, bytes};
  Histogrammer histogrammer;
  Histogram histogram;
  const RadixPass pass{0, 15, values.format().bits - 15};
  histogram.Reset(pass.bins());
  histogrammer.Add(values, pass, nullptr, histogram);
  Use(histogram);
}

void Run(v1::Dtype dtype, int64_t count, const std::shared_ptr<Storage>& host) {
  const size_t size = host->bytes().size();
  const std::shared_ptr<Storage> device = Storage::Allocate(static_cast<int64_t>(size)).value();
  const std::shared_ptr<Storage> copy = Storage::Allocate(static_cast<int64_t>(size)).value();
  std::memcpy(device->bytes().data(), host->bytes().data(), size);
  const Bitmask mask = HalfMask(count);
  const std::string what = DtypeName(dtype) + "-" + std::to_string(size >> 20) + "MiB";
  const auto compare = [&](const std::string& name, const std::function<void(const std::shared_ptr<Storage>&)>& pass,
                           double of_copy) {
    const std::vector<double> seconds =
        MedianSeconds({[&] { CopyWithinDevice(copy->bytes().data(), device->bytes().data(), size); },
                       [&] { pass(host); }, [&] { pass(device); }});
    PrintRatio("GPU", name + "-" + what + "-vs-copy", seconds[0], seconds[2], of_copy);
    PrintRatio("GPU", name + "-" + what + "-vs-cpu", seconds[1], seconds[2], 8);
  };
  compare(
      "count", [&](const auto& on) { Use(CountZeros(dtype, std::as_const(*on).bytes())); }, 0.8);
  compare(
      "histogram", [&](const auto& on) { AddFirstPass(dtype, std::as_const(*on).bytes()); }, 0.3);
  // A mask of 1 bit an element comes over the bus, some fifty times slower than the device's memory.
  compare(
      "verify", [&](const auto& on) { Use(VerifyMask(dtype, std::as_const(*on).bytes(), mask)); }, 0.1);
  compare(
      "apply", [&](const auto& on) { ApplyMask(dtype, on->bytes(), mask); }, 0.1);
}

}  // namespace
}  // namespace espalier::bench

int main() {
  using espalier::bench::NormalShard;
  constexpr int64_t kElements = int64_t{1} << 27;
  // In host memory, before there is another.
  const auto f32 = NormalShard(espalier::v1::DTYPE_F32, kElements);
  const auto bf16 = NormalShard(espalier::v1::DTYPE_BF16, kElements);
  auto device = espalier::OpenCuda(0);
  if (!device.ok()) {
    std::fprintf(stderr, "gpu_passes: %s\n", std::string(device.status().message()).c_str());
    return 1;
  }
  std::printf("  on %s:\n", (*device)->name().c_str());
  espalier::UseAccelerator(*std::move(device));
  espalier::bench::Run(espalier::v1::DTYPE_F32, kElements, f32);
  espalier::bench::Run(espalier::v1::DTYPE_BF16, kElements, bf16);
  return 0;
}
