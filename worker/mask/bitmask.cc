#include "worker/mask/bitmask.h"

#include <bit>

namespace espalier {

Bitmask::Bitmask(int64_t size, bool keep)
    : size_(size), words_(static_cast<size_t>((size + 63) / 64), keep ? ~uint64_t{0} : uint64_t{0}) {
  if (const int64_t tail = size & 63; keep && tail != 0) words_.back() = (uint64_t{1} << tail) - 1;
}

int64_t Bitmask::CountKept() const {
  int64_t kept = 0;
  for (const uint64_t word : words_) kept += std::popcount(word);
  return kept;
}

}  // namespace espalier
