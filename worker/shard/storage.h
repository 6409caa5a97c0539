#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace espalier {

// Bytes of a shard, 64-byte aligned, zero, in host memory or in that of the accelerator in use, which the host may read and
// write as well. Whoever holds a shared_ptr to it keeps it alive; who holds only a span of it may look at memory that is no
// longer the live tensor's.
class Storage {
 public:
  // LIMIT_EXCEEDED when the machine does not give the memory. Zero bytes are fine.
  static absl::StatusOr<std::shared_ptr<Storage>> Allocate(int64_t bytes);
  // One storage for each size, in one mapping: a model of many small tensors gets large pages, too. The memory goes back
  // when the last of them is gone.
  static absl::StatusOr<std::vector<std::shared_ptr<Storage>>> AllocateAll(absl::Span<const int64_t> sizes);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  absl::Span<std::byte> bytes() { return {data(), static_cast<size_t>(size_)}; }
  absl::Span<const std::byte> bytes() const { return {data(), static_cast<size_t>(size_)}; }

 private:
  Storage(std::shared_ptr<std::byte> data, int64_t size) : memory_(std::move(data)), size_(size) {}
  std::byte* data() const { return memory_.get(); }
  const std::shared_ptr<std::byte> memory_;
  const int64_t size_;
};

}  // namespace espalier
