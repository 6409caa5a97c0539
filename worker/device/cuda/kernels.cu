#include "worker/device/cuda/kernels.h"

#include <algorithm>

#include "worker/device/element_ops.h"

namespace espalier::cuda {
namespace {

// A thread reads 16 bytes at a time, the widest load there is. The threads of a warp that share a word of a mask, 4 (elements
// of one byte) to 32 (of eight), lie beside each other.
constexpr int kVectorBytes = 16;
constexpr int kThreads = 256;
constexpr int kHistogramThreads = 512;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr unsigned kWholeWarp = 0xFFFFFFFF;

template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

// Atomic additions know 64 bits under this name only.
using Counter = unsigned long long;
static_assert(sizeof(Counter) == sizeof(uint64_t));

template <class T>
struct Shard {
  T* data;
  int64_t count;

  __host__ __device__ int64_t vectors() const { return (count + kLanes<T> - 1) / kLanes<T>; }
};

template <class T>
struct Vector {
  T elements[kLanes<T>];
  int64_t first;  // element
  int count;      // fewer at the shard's end, none behind it
};

// Whether the thread's vector lies where it can be read and written at once.
template <class T>
__device__ bool IsWhole(const Shard<T>& shard, int count) {
  return count == kLanes<T> && reinterpret_cast<uintptr_t>(shard.data) % kVectorBytes == 0;
}

template <class T>
__device__ Vector<T> Load(const Shard<T>& shard, int64_t vector) {
  Vector<T> out;
  out.first = vector * kLanes<T>;
  const int64_t left = shard.count - out.first;
  out.count = left < 0 ? 0 : left < kLanes<T> ? static_cast<int>(left) : kLanes<T>;
  if (IsWhole(shard, out.count)) {
    const uint4 raw = *reinterpret_cast<const uint4*>(shard.data + out.first);
    memcpy(out.elements, &raw, kVectorBytes);
  } else {
    for (int k = 0; k < kLanes<T>; ++k) out.elements[k] = k < out.count ? shard.data[out.first + k] : T{0};
  }
  return out;
}

template <class T>
__device__ void Store(const Shard<T>& shard, const Vector<T>& vector) {
  if (IsWhole(shard, vector.count)) {
    uint4 raw;
    memcpy(&raw, vector.elements, kVectorBytes);
    *reinterpret_cast<uint4*>(shard.data + vector.first) = raw;
  } else {
    for (int k = 0; k < vector.count; ++k) shard.data[vector.first + k] = vector.elements[k];
  }
}

// Calls `each` with the vectors of this thread. All threads of a block make the same number of steps, since those of a warp
// work together: some with an empty vector at the end.
template <class T, class Each>
__device__ void ForEachVector(const Shard<T>& shard, Each each) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t base = int64_t{blockIdx.x} * blockDim.x; base < shard.vectors(); base += stride) {
    each(Load(shard, base + threadIdx.x));
  }
}

// Bit k: `is` of element k.
template <class T, class Is>
__device__ uint32_t BitsOf(const Vector<T>& vector, Is is) {
  uint32_t bits = 0;
#pragma unroll
  for (int k = 0; k < kLanes<T>; ++k) bits |= (k < vector.count && is(vector.elements[k]) ? 1u : 0u) << k;
  return bits;
}

template <class T>
__device__ uint32_t All(const Vector<T>& vector) {
  return (1u << vector.count) - 1;
}

// The bits of a mask that belong to a vector, which never lies across two words.
template <class T>
__device__ uint32_t KeptOf(const Vector<T>& vector, const uint64_t* keep) {
  if (vector.count == 0) return 0;
  return static_cast<uint32_t>(keep[vector.first / 64] >> (vector.first % 64)) & All(vector);
}

// Puts together the word that a few threads have bits of; one of them writes it.
template <class T>
__device__ void StoreBits(const Vector<T>& vector, uint32_t bits, uint64_t* words) {
  constexpr int kThreadsPerWord = 64 / kLanes<T>;
  Counter word = Counter{bits} << (vector.first % 64);
#pragma unroll
  for (int step = 1; step < kThreadsPerWord; step *= 2) word |= __shfl_xor_sync(kWholeWarp, word, step);
  if (vector.first % 64 == 0 && vector.count > 0) words[vector.first / 64] = word;
}

// Adds what all threads counted to `sum`, with one addition a warp.
__device__ void AddUp(Counter counted, uint64_t* sum) {
#pragma unroll
  for (int step = warpSize / 2; step > 0; step /= 2) counted += __shfl_down_sync(kWholeWarp, counted, step);
  if (threadIdx.x % warpSize == 0 && counted != 0) atomicAdd(reinterpret_cast<Counter*>(sum), counted);
}

template <class T>
__global__ void ApplyKernel(Shard<T> shard, const uint64_t* keep) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t v = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; v < shard.vectors(); v += stride) {
    const int64_t first = v * kLanes<T>;
    const uint64_t kept = keep[first / 64] >> (first % 64);
    constexpr uint64_t kAll = (uint64_t{1} << kLanes<T>) - 1;
    if ((kept & kAll) == kAll) continue;  // nothing to read, nothing to write
    Vector<T> vector = Load(shard, v);
#pragma unroll
    for (int k = 0; k < kLanes<T>; ++k) vector.elements[k] = Masked(vector.elements[k], (kept >> k & 1) != 0);
    Store(shard, vector);
  }
}

template <class T>
__global__ void CountZerosKernel(Shard<T> shard, T magnitude, uint64_t* zeros) {
  Counter sum = 0;
  ForEachVector(shard, [&](const Vector<T>& vector) {
    sum += __popc(BitsOf(vector, [=](T element) { return IsZero(element, magnitude); }));
  });
  AddUp(sum, zeros);
}

template <class T>
__global__ void CountAboveKernel(Shard<T> shard, T magnitude, T bound, uint64_t* above) {
  Counter sum = 0;
  ForEachVector(shard, [&](const Vector<T>& vector) {
    sum += __popc(BitsOf(vector, [=](T element) { return IsAbove(element, magnitude, bound); }));
  });
  AddUp(sum, above);
}

template <class T>
__global__ void VerifyKernel(Shard<T> shard, const uint64_t* keep, T magnitude, uint64_t* counts) {
  Counter zeros = 0;
  Counter violations = 0;
  ForEachVector(shard, [&](const Vector<T>& vector) {
    const uint32_t zero = BitsOf(vector, [=](T element) { return IsZero(element, magnitude); });
    zeros += __popc(zero);
    violations += __popc(All(vector) & ~zero & ~KeptOf(vector, keep));
  });
  AddUp(zeros, counts);
  AddUp(violations, counts + 1);
}

template <class T>
__global__ void NonZerosKernel(Shard<T> shard, T magnitude, uint64_t* keep) {
  ForEachVector(shard, [&](const Vector<T>& vector) {
    StoreBits(vector, BitsOf(vector, [=](T element) { return !IsZero(element, magnitude); }), keep);
  });
}

template <class T>
__global__ void CompareKernel(Shard<T> shard, T threshold, T nan, uint64_t* below, uint64_t* equal) {
  ForEachVector(shard, [&](const Vector<T>& vector) {
    StoreBits(vector, BitsOf(vector, [=](T element) { return ImageOf(element, nan) < threshold; }), below);
    StoreBits(vector, BitsOf(vector, [=](T element) { return ImageOf(element, nan) == threshold; }), equal);
  });
}

// Counts in the block's own memory, and adds that up at the end: weights crowd in few bins, on which all blocks would wait
// for each other. Without the room for it, threads of a warp that hit the same bin add once together.
template <class T, bool kInBlock>
__global__ void HistogramKernel(Shard<T> shard, T low, T last, T nan, int shift, int bins, const uint64_t* keep,
                                uint64_t* out) {
  extern __shared__ uint32_t counted[];  // a block does not see 2^32 elements of a shard
  auto* const sums = reinterpret_cast<Counter*>(out);
  if constexpr (kInBlock) {
    for (int bin = static_cast<int>(threadIdx.x); bin < bins; bin += static_cast<int>(blockDim.x)) counted[bin] = 0;
    __syncthreads();
  }
  ForEachVector(shard, [&](const Vector<T>& vector) {
    const uint32_t kept = keep == nullptr ? All(vector) : KeptOf(vector, keep);
    for (int k = 0; k < kLanes<T>; ++k) {
      const T image = ImageOf(vector.elements[k], nan);
      if ((kept >> k & 1) == 0 || !IsWithin(image, low, last)) continue;
      const uint32_t bin = BinOf(image, low, shift);
      if constexpr (kInBlock) {
        atomicAdd(&counted[bin], 1u);
      } else {
        const unsigned same = __match_any_sync(__activemask(), bin);
        if (static_cast<int>(threadIdx.x % warpSize) == __ffs(static_cast<int>(same)) - 1) {
          atomicAdd(&sums[bin], static_cast<Counter>(__popc(same)));
        }
      }
    }
  });
  if constexpr (kInBlock) {
    __syncthreads();
    for (int bin = static_cast<int>(threadIdx.x); bin < bins; bin += static_cast<int>(blockDim.x)) {
      if (counted[bin] != 0) atomicAdd(&sums[bin], static_cast<Counter>(counted[bin]));
    }
  }
}

// Calls `body` with the elements as unsigned integers of their width.
template <class Body>
cudaError_t WithShard(DeviceElements elements, Body body) {
  switch (elements.width) {
    case 1:
      return body(Shard<uint8_t>{static_cast<uint8_t*>(elements.data), elements.count});
    case 2:
      return body(Shard<uint16_t>{static_cast<uint16_t*>(elements.data), elements.count});
    case 4:
      return body(Shard<uint32_t>{static_cast<uint32_t*>(elements.data), elements.count});
    default:
      return body(Shard<uint64_t>{static_cast<uint64_t*>(elements.data), elements.count});
  }
}

template <class T>
T ValueOf(const Shard<T>&, uint64_t bits) {
  return static_cast<T>(bits);
}

template <class T>
unsigned BlocksFor(const Place& place, const Shard<T>& shard, int threads, int per_multiprocessor) {
  const int64_t needed = (shard.vectors() + threads - 1) / threads;
  return static_cast<unsigned>(
      std::clamp<int64_t>(needed, 1, int64_t{place.multiprocessors} * std::max(per_multiprocessor, 1)));
}

template <class T>
unsigned Blocks(const Place& place, const Shard<T>& shard) {
  return BlocksFor(place, shard, kThreads, kBlocksPerMultiprocessor);
}

template <class T>
cudaError_t CountInBlocks(const Place& place, const Shard<T>& shard, const DevicePass& pass, const uint64_t* keep,
                          uint64_t* bins) {
  const auto kernel = HistogramKernel<T, true>;
  const size_t shared = static_cast<size_t>(pass.bins) * sizeof(uint32_t);
  cudaError_t done =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  int fitting = 1;
  if (done == cudaSuccess) {
    done = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fitting, kernel, kHistogramThreads, shared);
  }
  if (done != cudaSuccess) return done;
  kernel<<<BlocksFor(place, shard, kHistogramThreads, fitting), kHistogramThreads, shared, place.stream>>>(
      shard, ValueOf(shard, pass.low), ValueOf(shard, pass.last), ValueOf(shard, pass.nan), pass.shift,
      static_cast<int>(pass.bins), keep, bins);
  return cudaGetLastError();
}

}  // namespace

cudaError_t FindKernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, ApplyKernel<uint16_t>);
}

cudaError_t Apply(const Place& place, DeviceElements elements, const uint64_t* keep) {
  return WithShard(elements, [&](auto shard) {
    ApplyKernel<<<Blocks(place, shard), kThreads, 0, place.stream>>>(shard, keep);
    return cudaGetLastError();
  });
}

cudaError_t CountZeros(const Place& place, DeviceElements elements, uint64_t magnitude, uint64_t* zeros) {
  return WithShard(elements, [&](auto shard) {
    CountZerosKernel<<<Blocks(place, shard), kThreads, 0, place.stream>>>(shard, ValueOf(shard, magnitude), zeros);
    return cudaGetLastError();
  });
}

cudaError_t CountAbove(const Place& place, DeviceElements elements, uint64_t magnitude, uint64_t bound, uint64_t* above) {
  return WithShard(elements, [&](auto shard) {
    CountAboveKernel<<<Blocks(place, shard), kThreads, 0, place.stream>>>(shard, ValueOf(shard, magnitude),
                                                                         ValueOf(shard, bound), above);
    return cudaGetLastError();
  });
}

cudaError_t Verify(const Place& place, DeviceElements elements, const uint64_t* keep, uint64_t magnitude, uint64_t* counts) {
  return WithShard(elements, [&](auto shard) {
    VerifyKernel<<<Blocks(place, shard), kThreads, 0, place.stream>>>(shard, keep, ValueOf(shard, magnitude), counts);
    return cudaGetLastError();
  });
}

cudaError_t NonZeros(const Place& place, DeviceElements elements, uint64_t magnitude, uint64_t* keep) {
  return WithShard(elements, [&](auto shard) {
    NonZerosKernel<<<Blocks(place, shard), kThreads, 0, place.stream>>>(shard, ValueOf(shard, magnitude), keep);
    return cudaGetLastError();
  });
}

cudaError_t Histogram(const Place& place, DeviceElements elements, const DevicePass& pass, const uint64_t* keep,
                      uint64_t* bins) {
  return WithShard(elements, [&](auto shard) {
    if (pass.bins * static_cast<int64_t>(sizeof(uint32_t)) <= place.shared_bytes) {
      return CountInBlocks(place, shard, pass, keep, bins);
    }
    using T = std::remove_pointer_t<decltype(shard.data)>;
    HistogramKernel<T, false><<<Blocks(place, shard), kThreads, 0, place.stream>>>(
        shard, ValueOf(shard, pass.low), ValueOf(shard, pass.last), ValueOf(shard, pass.nan), pass.shift,
        static_cast<int>(pass.bins), keep, bins);
    return cudaGetLastError();
  });
}

cudaError_t Compare(const Place& place, DeviceElements elements, uint64_t threshold, uint64_t nan, uint64_t* below,
                    uint64_t* equal) {
  return WithShard(elements, [&](auto shard) {
    CompareKernel<<<Blocks(place, shard), kThreads, 0, place.stream>>>(shard, ValueOf(shard, threshold),
                                                                      ValueOf(shard, nan), below, equal);
    return cudaGetLastError();
  });
}

}  // namespace espalier::cuda
