#include "worker/mask/digest.h"

#include <random>

#include "gtest/gtest.h"

namespace espalier {
namespace {

constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

Bitmask Pruning(int64_t size, const std::vector<int64_t>& pruned) {
  Bitmask mask(size);
  for (const int64_t i : pruned) mask.Set(i, false);
  return mask;
}

Bitmask Random(int64_t size, uint32_t seed) {
  std::mt19937_64 random(seed);
  Bitmask mask(size);
  for (int64_t i = 0; i < size; ++i) mask.Set(i, (random() & 1) != 0);
  return mask;
}

Bitmask Cut(const Bitmask& mask, ShardRange range) {
  Bitmask part(range.size());
  for (int64_t i = 0; i < range.size(); ++i) part.Set(i, mask.Keeps(range.begin + i));
  return part;
}

// The definition, word by word.
uint64_t Reference(absl::string_view name, const Bitmask& mask) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  unsigned __int128 sum = 0;
  for (int64_t j = 0; j * 32 < mask.size(); ++j) {
    uint64_t v = 0;
    for (int64_t b = 0; b < 32 && j * 32 + b < mask.size(); ++b) {
      if (!mask.Keeps(j * 32 + b)) v |= uint64_t{1} << b;
    }
    uint64_t z = hash + static_cast<uint64_t>(j) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    sum = (sum + static_cast<unsigned __int128>(v) * (z % kPrime)) % kPrime;
  }
  return static_cast<uint64_t>(sum);
}

TEST(DigestTest, GivesTheTestVector) {
  const Bitmask mask = Pruning(96, {0, 33, 64});
  EXPECT_EQ(MaskDigest("model.layers.0.mlp.down_proj.weight", mask, {0, 96}), 608885797996967839u);
}

TEST(DigestTest, FollowsTheDefinition) {
  for (const int64_t size : {0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 1000, 4099}) {
    const Bitmask mask = Random(size, 7);
    EXPECT_EQ(MaskDigest("w", mask, {0, size}), Reference("w", mask)) << size;
  }
}

TEST(DigestTest, DependsOnNameAndPlaceAndIsZeroForDenseMasks) {
  EXPECT_EQ(MaskDigest("w", Bitmask(1000), {0, 1000}), 0u);
  EXPECT_NE(MaskDigest("w", Pruning(64, {1}), {0, 64}), MaskDigest("w", Pruning(64, {2}), {0, 64}));
  EXPECT_NE(MaskDigest("w", Pruning(64, {1}), {0, 64}), MaskDigest("v", Pruning(64, {1}), {0, 64}));
}

TEST(DigestTest, DoesNotDependOnTheCuts) {
  constexpr int64_t kSize = 300;
  const Bitmask mask = Random(kSize, 3);
  const uint64_t whole = MaskDigest("w", mask, {0, kSize});
  for (int64_t first = 0; first <= kSize; ++first) {
    for (const int64_t length : {0, 1, 5, 31, 32, 33, 64, 97}) {
      const int64_t second = std::min(kSize, first + length);
      uint64_t sum = 0;
      for (const ShardRange range : {ShardRange{0, first}, ShardRange{first, second}, ShardRange{second, kSize}}) {
        sum = AddDigests(sum, MaskDigest("w", Cut(mask, range), range));
      }
      ASSERT_EQ(sum, whole) << first << " " << second;
    }
  }
}

TEST(DigestTest, AddsModuloThePrime) {
  EXPECT_EQ(AddDigests(kPrime - 1, 1), 0u);
  EXPECT_EQ(AddDigests(kPrime - 1, kPrime - 1), kPrime - 2);
  EXPECT_EQ(AddDigests(0, 0), 0u);
  EXPECT_EQ(AddDigests(5, 6), 11u);
}

}  // namespace
}  // namespace espalier
