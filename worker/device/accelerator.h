#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace espalier {

// The elements of one shard in memory of an accelerator: unsigned integers of `width` bytes (1, 2, 4 or 8).
struct DeviceElements {
  void* data = nullptr;
  int width = 0;
  int64_t count = 0;
};

// One pass of a radix select: elements whose image lies in [low, last] are counted by (image - low) >> shift.
struct DevicePass {
  uint64_t low = 0;
  uint64_t last = 0;
  uint64_t nan = 0;  // image of NaN
  int shift = 0;
  int64_t bins = 0;
};

// A device that holds shards and passes over them: what `--device` names. The kernels of mask/ and select/ hand it every shard
// that lies in its memory, and do the same on the CPU for all others; results are equal to the bit.
//
// Masks and results are host memory: 64-bit words, bit i of word i / 64 is element i, bits past the count are zero (read and
// written). Calls return when the result is there. A device that fails cannot be trusted with a count: the process ends with
// one line that says why, and the run with WORKER_LOST. Calls come from one thread at a time.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  // As it is told to people: "cuda:0 NVIDIA H100 80GB HBM3".
  virtual std::string name() const = 0;
  // Among the devices of its kind that this process sees.
  virtual int number() const = 0;

  // Zeroed, 64-byte aligned memory that the host may read and write between calls; null with errno when there is none. May be
  // given back after the accelerator is gone.
  virtual std::shared_ptr<std::byte> Obtain(size_t bytes) = 0;

  // Stores +0 where a bit of `keep` is 0.
  virtual void Apply(DeviceElements elements, const uint64_t* keep) = 0;
  // Elements in which no bit of `magnitude` is set.
  virtual int64_t CountZeros(DeviceElements elements, uint64_t magnitude) = 0;
  // Elements whose bits of `magnitude` are a number above `bound`.
  virtual int64_t CountAbove(DeviceElements elements, uint64_t magnitude, uint64_t bound) = 0;
  // Zeros, and elements that are not zero where a bit of `keep` is 0.
  virtual void Verify(DeviceElements elements, const uint64_t* keep, uint64_t magnitude, int64_t& zeros,
                      int64_t& violations) = 0;
  // Sets the bits of elements that are not zero.
  virtual void NonZeros(DeviceElements elements, uint64_t magnitude, uint64_t* keep) = 0;
  // Adds to `bins` the elements of the pass, without those where a bit of `keep` is 0; a null `keep` keeps all.
  virtual void Histogram(DeviceElements elements, const DevicePass& pass, const uint64_t* keep, uint64_t* bins) = 0;
  // Sets the bits of elements whose image is below `threshold`, and of those where it is equal.
  virtual void Compare(DeviceElements elements, uint64_t threshold, uint64_t nan, uint64_t* below, uint64_t* equal) = 0;
};

// Shards are allocated in its memory from now on. Once, before any shard; tests put null at their end. Not thread-safe.
void UseAccelerator(std::unique_ptr<Accelerator> accelerator);

// From the accelerator in use, which AcceleratorOf then answers for every address within. Null with errno when it has none;
// `in_use` says whether there is an accelerator at all. Thread-safe, as is AcceleratorOf.
bool AcceleratorInUse();
std::shared_ptr<std::byte> ObtainFromAccelerator(size_t bytes);

// The accelerator whose memory this is; null for host memory.
Accelerator* AcceleratorOf(const void* address);

}  // namespace espalier
