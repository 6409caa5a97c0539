#pragma once

#include <cstdint>

namespace espalier {

// Digests of masks are numbers modulo this prime (worker/mask/digest.h).
inline constexpr uint64_t kDigestPrime = (uint64_t{1} << 61) - 1;

// (a + b) mod p, for any a and b. Pure.
constexpr uint64_t AddDigests(uint64_t a, uint64_t b) {
  // 2^61 = 1 mod p: the upper bits are added to the lower ones.
  const uint64_t sum = (a & kDigestPrime) + (a >> 61) + (b & kDigestPrime) + (b >> 61);
  const uint64_t folded = (sum & kDigestPrime) + (sum >> 61);
  return folded >= kDigestPrime ? folded - kDigestPrime : folded;
}

}  // namespace espalier
