#include "worker/mask/digest.h"

namespace espalier {
namespace {

constexpr int kDigits = 32;

uint64_t Fnv1a64(absl::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

// Finalizer of splitmix64.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// 2^61 = 1 mod p: the upper bits are added to the lower ones.
uint64_t Reduce(unsigned __int128 x) {
  uint64_t folded = static_cast<uint64_t>(x & kDigestPrime) + static_cast<uint64_t>(x >> 61);
  folded = (folded & kDigestPrime) + (folded >> 61);
  return folded >= kDigestPrime ? folded - kDigestPrime : folded;
}

// Reads the pruned elements of a mask, 32 from any offset on; those past the end count as kept.
class PrunedBits {
 public:
  explicit PrunedBits(const Bitmask& mask) : words_(mask.words()), tail_(mask.size() & 63) {}

  uint32_t From(int64_t offset) const {
    const size_t word = static_cast<size_t>(offset >> 6);
    const int shift = static_cast<int>(offset & 63);
    uint64_t bits = Word(word) >> shift;
    if (shift > 64 - kDigits && word + 1 < words_.size()) bits |= Word(word + 1) << (64 - shift);
    return static_cast<uint32_t>(bits);
  }

 private:
  uint64_t Word(size_t i) const {
    const uint64_t valid = i + 1 == words_.size() && tail_ != 0 ? (uint64_t{1} << tail_) - 1 : ~uint64_t{0};
    return ~words_[i] & valid;
  }

  absl::Span<const uint64_t> words_;
  int64_t tail_;
};

}  // namespace

uint64_t MaskDigest(absl::string_view name, const Bitmask& mask, ShardRange range) {
  if (range.empty()) return 0;
  const uint64_t seed = Fnv1a64(name);
  const PrunedBits pruned(mask);
  uint64_t digest = 0;
  for (int64_t j = range.begin / kDigits; j * kDigits < range.end; ++j) {
    const int64_t offset = j * kDigits - range.begin;
    // The range may begin inside of its first number.
    const uint32_t v = offset >= 0 ? pruned.From(offset) : pruned.From(0) << -offset;
    if (v == 0) continue;
    const uint64_t r = Reduce(Mix(seed + static_cast<uint64_t>(j) * 0x9E3779B97F4A7C15));
    digest = AddDigests(digest, Reduce(static_cast<unsigned __int128>(v) * r));
  }
  return digest;
}

}  // namespace espalier
