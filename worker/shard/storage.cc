#include "worker/shard/storage.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "worker/device/accelerator.h"

namespace espalier {
namespace {

constexpr size_t kAlignment = 64;

// From here on the pages come from the kernel one mapping a storage: zero without being touched, and given back at once.
// Below, the heap serves: a model of many small tensors would run into vm.max_map_count.
constexpr size_t kMapBytes = size_t{1} << 20;

// Null with errno when the machine does not give it.
std::shared_ptr<std::byte> Obtain(size_t bytes) {
  if (AcceleratorInUse()) return ObtainFromAccelerator(bytes);
  if (bytes >= kMapBytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    madvise(data, bytes, MADV_HUGEPAGE);  // a hint; kernels without huge pages refuse it and all works the same
    return {static_cast<std::byte*>(data), [bytes](std::byte* p) { munmap(p, bytes); }};
  }
  void* data = std::aligned_alloc(kAlignment, bytes);
  if (data == nullptr) return nullptr;
  std::memset(data, 0, bytes);
  return {static_cast<std::byte*>(data), [](std::byte* p) { std::free(p); }};
}

size_t RoundUp(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Storage>> Storage::Allocate(int64_t bytes) {
  auto all = AllocateAll(absl::MakeConstSpan(&bytes, 1));
  if (!all.ok()) return std::move(all).status();
  return std::move(all->front());
}

absl::StatusOr<std::vector<std::shared_ptr<Storage>>> Storage::AllocateAll(absl::Span<const int64_t> sizes) {
  size_t total = 0;
  for (const int64_t bytes : sizes) {
    if (bytes < 0) {
      return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("storage of ", bytes, " bytes"),
                       {{"what", "negative size"}, {"where", "Storage::AllocateAll"}});
    }
    total += RoundUp(static_cast<size_t>(bytes));
  }
  std::shared_ptr<std::byte> memory;
  if (total > 0) {
    memory = Obtain(total);
    if (memory == nullptr) {
      return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                       absl::StrCat("cannot allocate ", total, " bytes for shards: ", std::strerror(errno),
                                    "; use more workers or a machine with more memory"),
                       {{"limit", "memory"}, {"value", absl::StrCat(total)}});
    }
  }
  std::vector<std::shared_ptr<Storage>> out;
  std::byte* at = memory.get();
  for (const int64_t bytes : sizes) {
    // Each keeps the whole, and points to its own part of it.
    auto part = bytes == 0 ? nullptr : std::shared_ptr<std::byte>(memory, at);
    out.push_back(std::shared_ptr<Storage>(new Storage(std::move(part), bytes)));
    at += RoundUp(static_cast<size_t>(bytes));
  }
  return out;
}

}  // namespace espalier
