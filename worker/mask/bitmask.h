#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace espalier {

// One bit per element of a shard, 64-bit words, least significant first, 1 = keep. Bits past size() are zero.
class Bitmask {
 public:
  Bitmask() = default;
  // All ones (`keep`) or all zeros.
  explicit Bitmask(int64_t size, bool keep = true);

  int64_t size() const { return size_; }
  bool Keeps(int64_t i) const { return words_[static_cast<size_t>(i >> 6)] >> (i & 63) & 1; }
  void Set(int64_t i, bool keep) {
    const uint64_t bit = uint64_t{1} << (i & 63);
    uint64_t& word = words_[static_cast<size_t>(i >> 6)];
    word = keep ? word | bit : word & ~bit;
  }
  int64_t CountKept() const;
  int64_t CountPruned() const { return size_ - CountKept(); }

  absl::Span<const uint64_t> words() const { return words_; }
  // Writers keep the bits past size() zero.
  absl::Span<uint64_t> words() { return absl::MakeSpan(words_); }

  bool operator==(const Bitmask&) const = default;

 private:
  int64_t size_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace espalier
