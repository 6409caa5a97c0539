#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace espalier {

// Bytes of a shard, 64-byte aligned, zero-initialised by the kernel, in host memory. Whoever holds a shared_ptr to it
// keeps it alive; who holds only a span of it may look at memory that is no longer the live tensor's.
class Storage {
 public:
  // LIMIT_EXCEEDED when the machine does not give the memory. Zero bytes are fine.
  static absl::StatusOr<std::shared_ptr<Storage>> Allocate(int64_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  absl::Span<std::byte> bytes() { return {data_, static_cast<size_t>(size_)}; }
  absl::Span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  Storage(std::byte* data, int64_t size) : data_(data), size_(size) {}
  std::byte* const data_;
  const int64_t size_;
};

}  // namespace espalier
