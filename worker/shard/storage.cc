#include "worker/shard/storage.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

constexpr size_t kAlignment = 64;

// From here on the pages come from the kernel one mapping a storage: zero without being touched, and given back at once.
// Below, the heap serves: a model of many small tensors would run into vm.max_map_count.
constexpr size_t kMapBytes = size_t{1} << 20;

void* Obtain(size_t bytes) {
  if (bytes >= kMapBytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    madvise(data, bytes, MADV_HUGEPAGE);  // a hint; kernels without huge pages refuse it and all works the same
    return data;
  }
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data != nullptr) std::memset(data, 0, rounded);
  return data;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Storage>> Storage::Allocate(int64_t bytes) {
  if (bytes < 0) {
    return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("storage of ", bytes, " bytes"),
                     {{"what", "negative size"}, {"where", "Storage::Allocate"}});
  }
  void* data = nullptr;
  if (bytes > 0) {
    data = Obtain(static_cast<size_t>(bytes));
    if (data == nullptr) {
      return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                       absl::StrCat("cannot allocate ", bytes, " bytes for a shard: ", std::strerror(errno),
                                    "; use more workers or a machine with more memory"),
                       {{"limit", "memory"}, {"value", absl::StrCat(bytes)}});
    }
  }
  return std::shared_ptr<Storage>(new Storage(static_cast<std::byte*>(data), bytes));
}

Storage::~Storage() {
  if (data_ == nullptr) return;
  if (static_cast<size_t>(size_) >= kMapBytes) {
    munmap(data_, static_cast<size_t>(size_));
  } else {
    std::free(data_);
  }
}

}  // namespace espalier
