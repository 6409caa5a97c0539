#include "worker/device/cuda/cuda_accelerator.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/status_macros.h"
#include "worker/device/cuda/kernels.h"

namespace espalier {
namespace {

absl::Status NoDevice(absl::string_view why) {
  return MakeError(
      v1::ERROR_REASON_REQUEST_INVALID,
      absl::StrCat("--device cuda: ", why, "; nvidia-smi shows what this machine has, --device cpu needs none"),
      {{"field", "device"}});
}

// After an error the device's memory says nothing any more: no count of it may be reported.
void Check(cudaError_t result, absl::string_view what) {
  if (result == cudaSuccess) return;
  LogError("device_failed",
           {{"what", std::string(what)}, {"error", cudaGetErrorName(result)}, {"message", cudaGetErrorString(result)}});
  _exit(kExitFailed);
}

size_t Words(int64_t count) {
  return (static_cast<size_t>(count) + 63) / 64;
}

// Words in the device's memory, kept from pass to pass and made larger where one needs more.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { cudaFree(data_); }

  // What was in them is lost.
  uint64_t* OfSize(size_t words) {
    if (words > size_) {
      Check(cudaFree(data_), "free");
      data_ = nullptr;
      size_ = std::max(words, 2 * size_);
      Check(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(uint64_t)), "allocate words of a mask");
    }
    return data_;
  }

 private:
  uint64_t* data_ = nullptr;
  size_t size_ = 0;
};

class CudaAccelerator final : public Accelerator {
 public:
  CudaAccelerator(int device, std::string name, const cuda::Place& place)
      : name_(std::move(name)), location_{.type = cudaMemLocationTypeDevice, .id = device}, place_(place) {}
  ~CudaAccelerator() override { cudaStreamDestroy(place_.stream); }

  std::string name() const override { return name_; }
  int number() const override { return location_.id; }

  std::shared_ptr<std::byte> Obtain(size_t bytes) override {
    Choose();
    void* data = nullptr;
    const cudaError_t result = cudaMallocManaged(&data, bytes);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // or the next launch would find it
      errno = ENOMEM;
      return nullptr;
    }
    Check(result, "allocate shards");
    Check(cudaMemAdvise(data, bytes, cudaMemAdviseSetPreferredLocation, location_), "place shards");
    Check(cudaMemsetAsync(data, 0, bytes, place_.stream), "clear shards");
    Wait("clear shards");
    return {static_cast<std::byte*>(data), [](std::byte* p) { cudaFree(p); }};
  }

  void Apply(DeviceElements elements, const uint64_t* keep) override {
    if (!Begin(elements)) return;
    Check(cuda::Apply(place_, elements, Upload(keep, elements.count)), "apply a mask");
    Wait("apply a mask");
  }

  int64_t CountZeros(DeviceElements elements, uint64_t magnitude) override {
    if (!Begin(elements)) return 0;
    uint64_t* const sum = Zeroed(1);
    Check(cuda::CountZeros(place_, elements, magnitude, sum), "count zeros");
    uint64_t counted = 0;
    Download(sum, &counted, 1, "count zeros");
    return static_cast<int64_t>(counted);
  }

  int64_t CountAbove(DeviceElements elements, uint64_t magnitude, uint64_t bound) override {
    if (!Begin(elements)) return 0;
    uint64_t* const sum = Zeroed(1);
    Check(cuda::CountAbove(place_, elements, magnitude, bound, sum), "count what is no number");
    uint64_t counted = 0;
    Download(sum, &counted, 1, "count what is no number");
    return static_cast<int64_t>(counted);
  }

  void Verify(DeviceElements elements, const uint64_t* keep, uint64_t magnitude, int64_t& zeros,
              int64_t& violations) override {
    uint64_t counted[2] = {};
    if (Begin(elements)) {
      uint64_t* const sums = Zeroed(2);
      Check(cuda::Verify(place_, elements, Upload(keep, elements.count), magnitude, sums), "verify a mask");
      Download(sums, counted, 2, "verify a mask");
    }
    zeros = static_cast<int64_t>(counted[0]);
    violations = static_cast<int64_t>(counted[1]);
  }

  void NonZeros(DeviceElements elements, uint64_t magnitude, uint64_t* keep) override {
    if (!Begin(elements)) return;
    uint64_t* const words = first_.OfSize(Words(elements.count));
    Check(cuda::NonZeros(place_, elements, magnitude, words), "find zeros");
    Download(words, keep, Words(elements.count), "find zeros");
  }

  void Histogram(DeviceElements elements, const DevicePass& pass, const uint64_t* keep, uint64_t* bins) override {
    if (!Begin(elements)) return;
    const auto count = static_cast<size_t>(pass.bins);
    uint64_t* const sums = second_.OfSize(count);
    Check(cudaMemcpyAsync(sums, bins, count * sizeof(uint64_t), cudaMemcpyHostToDevice, place_.stream),
          "count magnitudes");
    const uint64_t* const kept = keep == nullptr ? nullptr : Upload(keep, elements.count);
    Check(cuda::Histogram(place_, elements, pass, kept, sums), "count magnitudes");
    Download(sums, bins, count, "count magnitudes");
  }

  void Compare(DeviceElements elements, uint64_t threshold, uint64_t nan, uint64_t* below, uint64_t* equal) override {
    if (!Begin(elements)) return;
    const size_t words = Words(elements.count);
    uint64_t* const less = first_.OfSize(words);
    uint64_t* const same = second_.OfSize(words);
    Check(cuda::Compare(place_, elements, threshold, nan, less, same), "compare magnitudes");
    Download(less, below, words, "compare magnitudes");
    Download(same, equal, words, "compare magnitudes");
  }

 private:
  // The device is a property of the thread; commands and uploads come from different ones.
  void Choose() { Check(cudaSetDevice(location_.id), "choose the device"); }

  // Brings a shard back that the host has looked at. False where there is nothing to do.
  bool Begin(DeviceElements elements) {
    if (elements.count == 0) return false;
    Choose();
    const size_t bytes = static_cast<size_t>(elements.count) * static_cast<size_t>(elements.width);
    Check(cudaMemPrefetchAsync(elements.data, bytes, location_, 0, place_.stream), "bring a shard to the device");
    return true;
  }

  const uint64_t* Upload(const uint64_t* mask, int64_t count) {
    uint64_t* const words = first_.OfSize(Words(count));
    Check(cudaMemcpyAsync(words, mask, Words(count) * sizeof(uint64_t), cudaMemcpyHostToDevice, place_.stream),
          "copy a mask to the device");
    return words;
  }

  uint64_t* Zeroed(size_t words) {
    uint64_t* const sums = second_.OfSize(words);
    Check(cudaMemsetAsync(sums, 0, words * sizeof(uint64_t), place_.stream), "clear a count");
    return sums;
  }

  void Download(const uint64_t* from, uint64_t* to, size_t words, absl::string_view what) {
    Check(cudaMemcpyAsync(to, from, words * sizeof(uint64_t), cudaMemcpyDeviceToHost, place_.stream), what);
    Wait(what);
  }

  void Wait(absl::string_view what) { Check(cudaStreamSynchronize(place_.stream), what); }

  const std::string name_;
  const cudaMemLocation location_;
  const cuda::Place place_;
  Scratch first_;
  Scratch second_;
};

}  // namespace

absl::StatusOr<int> CountCudaDevices() {
  int count = 0;
  if (const cudaError_t result = cudaGetDeviceCount(&count); result != cudaSuccess) {
    return NoDevice(absl::StrCat("no usable GPU here: ", cudaGetErrorString(result)));
  }
  if (count == 0) return NoDevice("no GPU here");
  return count;
}

absl::StatusOr<std::unique_ptr<Accelerator>> OpenCuda(int number) {
  ESPALIER_ASSIGN_OR_RETURN(const int count, CountCudaDevices());
  if (number < 0 || number >= count) {
    return NoDevice(absl::StrCat("there is no GPU ", number, ", this process sees ", count));
  }
  cudaDeviceProp properties{};
  cuda::Place place;
  cudaError_t result = cudaGetDeviceProperties(&properties, number);
  if (result == cudaSuccess && properties.concurrentManagedAccess == 0) {
    return NoDevice(absl::StrCat("GPU ", number, " (", properties.name,
                                 ") cannot share managed memory with the host, which shards need"));
  }
  if (result == cudaSuccess) result = cudaSetDevice(number);
  if (result == cudaSuccess && cuda::FindKernels() != cudaSuccess) {
    return NoDevice(absl::StrCat("this build has no kernels for GPU ", number, " (", properties.name,
                                 ", compute capability ", properties.major, ".", properties.minor,
                                 "): CMAKE_CUDA_ARCHITECTURES says for which"));
  }
  if (result == cudaSuccess) result = cudaStreamCreateWithFlags(&place.stream, cudaStreamNonBlocking);
  if (result != cudaSuccess) {
    return NoDevice(absl::StrCat("GPU ", number, " cannot be used: ", cudaGetErrorString(result)));
  }
  place.multiprocessors = properties.multiProcessorCount;
  place.shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
  return std::make_unique<CudaAccelerator>(number, absl::StrCat("cuda:", number, " ", properties.name), place);
}

}  // namespace espalier
