#include "worker/mask/kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "worker/shard/dtype.h"
#include "worker/shard/storage.h"

namespace espalier {
namespace {

// ---- What the kernels should say, element by element, by the values themselves. ----

double HalfValue(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  if (exponent == 0x1F) return fraction != 0 ? std::nan("") : std::numeric_limits<double>::infinity();
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
}

template <class T>
T Read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// The magnitude of a floating element; NaN where it is none. Integers: 0 or 1.
double Value(v1::Dtype dtype, const std::byte* at) {
  switch (dtype) {
    case v1::DTYPE_F64:
      return std::abs(Read<double>(at));
    case v1::DTYPE_F32:
      return std::abs(Read<float>(at));
    case v1::DTYPE_F16:
      return HalfValue(Read<uint16_t>(at));
    case v1::DTYPE_BF16:
      return std::abs(std::bit_cast<float>(static_cast<uint32_t>(Read<uint16_t>(at)) << 16));
    case v1::DTYPE_F8_E5M2:
      return HalfValue(static_cast<uint16_t>(Read<uint8_t>(at) << 8));
    case v1::DTYPE_F8_E4M3: {
      const uint8_t bits = Read<uint8_t>(at) & 0x7F;
      return bits == 0x7F ? std::nan("") : bits;  // zero exactly when its bits are
    }
    case v1::DTYPE_F8_E8M0: {
      const uint8_t bits = Read<uint8_t>(at);
      return bits == 0xFF ? std::nan("") : std::ldexp(1.0, bits - 127);
    }
    case v1::DTYPE_C64:
      return Read<float>(at) == 0 && Read<float>(at + 4) == 0 ? 0 : 1;
    default:
      for (int64_t i = 0; i < DtypeSize(dtype); ++i) {
        if (at[i] != std::byte{0}) return 1;
      }
      return 0;
  }
}

std::vector<v1::Dtype> AllDtypes() {
  std::vector<v1::Dtype> all;
  for (int i = v1::DTYPE_UNSPECIFIED + 1; i < v1::Dtype_ARRAYSIZE; ++i) all.push_back(static_cast<v1::Dtype>(i));
  return all;
}

std::vector<v1::Dtype> PrunableDtypes() {
  return {v1::DTYPE_F64, v1::DTYPE_F32, v1::DTYPE_F16, v1::DTYPE_BF16};
}

// Bit patterns in which the special ones are frequent: zeros of both signs, infinities, NaNs, denormals, single bits.
std::vector<std::byte> Patterns(v1::Dtype dtype, int64_t count, uint64_t seed) {
  const int64_t width = DtypeSize(dtype);
  std::mt19937_64 random(seed);
  const uint64_t sign = uint64_t{1} << (8 * width - 1);
  uint64_t infinity = 0;
  if (dtype == v1::DTYPE_F64) infinity = 0x7FF0'0000'0000'0000;
  if (dtype == v1::DTYPE_F32) infinity = 0x7F80'0000;
  if (dtype == v1::DTYPE_F16) infinity = 0x7C00;
  if (dtype == v1::DTYPE_BF16) infinity = 0x7F80;
  if (dtype == v1::DTYPE_F8_E5M2) infinity = 0x7C;
  if (dtype == v1::DTYPE_F8_E4M3) infinity = 0x7E;
  if (dtype == v1::DTYPE_C64) infinity = 0x8000'0000;
  std::vector<std::byte> bytes(static_cast<size_t>(count * width));
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    switch (random() % 8) {
      case 0:
      case 1:
        bits = 0;
        break;
      case 2:
        bits = sign;
        break;
      case 3:
        bits = infinity;
        break;
      case 4:
        bits = infinity | sign | 1;
        break;
      case 5:
        bits = uint64_t{1} << (bits % 64);
        break;
      default:
        break;
    }
    std::memcpy(&bytes[static_cast<size_t>(i * width)], &bits, static_cast<size_t>(width));
  }
  return bytes;
}

Bitmask RandomMask(int64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bitmask mask(size);
  for (uint64_t& word : mask.words()) {
    const uint64_t bits = random() % 4 == 0 ? (random() % 2 == 0 ? 0 : ~uint64_t{0}) : random();
    word &= bits;
  }
  return mask;
}

struct Expected {
  int64_t zeros = 0;
  int64_t nans = 0;
  int64_t violations = 0;
  Bitmask zero_mask;
  std::vector<std::byte> masked;
};

Expected Reference(v1::Dtype dtype, absl::Span<const std::byte> bytes, const Bitmask& mask) {
  const int64_t width = DtypeSize(dtype);
  Expected expected{.zero_mask = Bitmask(mask.size()), .masked = {bytes.begin(), bytes.end()}};
  for (int64_t i = 0; i < mask.size(); ++i) {
    const double value = Value(dtype, &bytes[static_cast<size_t>(i * width)]);
    const bool zero = value == 0;
    expected.zeros += zero ? 1 : 0;
    expected.nans += std::isnan(value) ? 1 : 0;
    expected.violations += !mask.Keeps(i) && !zero ? 1 : 0;
    if (zero) expected.zero_mask.Set(i, false);
    if (!mask.Keeps(i)) std::memset(&expected.masked[static_cast<size_t>(i * width)], 0, static_cast<size_t>(width));
  }
  return expected;
}

void CheckAll(v1::Dtype dtype, int64_t count, size_t offset, uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << DtypeName(dtype) << " x " << count << " at " << offset << " seed " << seed);
  const std::vector<std::byte> patterns = Patterns(dtype, count, seed);
  const Bitmask mask = RandomMask(count, seed + 1);
  const Expected expected = Reference(dtype, patterns, mask);

  // Guards on both sides show a write outside.
  constexpr std::byte kGuard{0xC3};
  std::vector<std::byte> memory(offset + patterns.size() + 64, kGuard);
  std::copy(patterns.begin(), patterns.end(), memory.begin() + static_cast<std::ptrdiff_t>(offset));
  const auto bytes = absl::MakeSpan(memory).subspan(offset, patterns.size());

  EXPECT_EQ(CountZeros(dtype, bytes), expected.zeros);
  EXPECT_EQ(CountNans(dtype, bytes), expected.nans);
  EXPECT_EQ(MaskOfZeros(dtype, bytes), expected.zero_mask);
  if (!IsPrunableDtype(dtype)) return;
  const VerifyCounts before = VerifyMask(dtype, bytes, mask);
  EXPECT_EQ(before.zeros, expected.zeros);
  EXPECT_EQ(before.violations, expected.violations);

  ApplyMask(dtype, bytes, mask);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.masked.begin(), expected.masked.end()));
  EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(offset),
                          [](std::byte b) { return b == kGuard; }));
  EXPECT_TRUE(std::all_of(memory.end() - 64, memory.end(), [](std::byte b) { return b == kGuard; }));
  EXPECT_EQ(VerifyMask(dtype, bytes, mask).violations, 0);
}

// Every instruction set of this machine.
class KernelsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().DeInit();
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

std::vector<int64_t> Targets() {
  std::vector<int64_t> targets;
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t bit = 1; bit != 0 && bit <= supported; bit <<= 1) {
    if ((supported & bit) != 0) targets.push_back(bit);
  }
  return targets;
}

INSTANTIATE_TEST_SUITE_P(Targets, KernelsTest, ::testing::ValuesIn(Targets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST_P(KernelsTest, EveryLengthUpToSomeWords) {
  for (const v1::Dtype dtype : AllDtypes()) {
    for (int64_t count = 0; count <= 200; ++count) CheckAll(dtype, count, 0, static_cast<uint64_t>(count));
  }
}

TEST_P(KernelsTest, EveryAlignment) {
  for (const v1::Dtype dtype : AllDtypes()) {
    for (size_t offset = 0; offset < 64; ++offset) CheckAll(dtype, 333, offset, offset);
  }
}

// Longer than the lanes of a vector can count without being emptied.
TEST_P(KernelsTest, LongTensors) {
  for (const v1::Dtype dtype : AllDtypes()) CheckAll(dtype, 700'001, 1, 5);
}

// All elements alike fill the lane counters to their brim.
TEST_P(KernelsTest, CountersDoNotOverflow) {
  for (const v1::Dtype dtype : AllDtypes()) {
    constexpr int64_t kCount = 600'003;
    std::vector<std::byte> bytes(static_cast<size_t>(kCount * DtypeSize(dtype)));
    EXPECT_EQ(CountZeros(dtype, bytes), dtype == v1::DTYPE_F8_E8M0 ? 0 : kCount);
    std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});
    EXPECT_EQ(CountNans(dtype, bytes), IsFloatDtype(dtype) ? kCount : 0);
    if (!IsPrunableDtype(dtype)) continue;
    EXPECT_EQ(VerifyMask(dtype, bytes, Bitmask(kCount, false)).violations, kCount);
    EXPECT_EQ(VerifyMask(dtype, bytes, Bitmask(kCount, true)).violations, 0);
  }
}

// known-bugs 4: the same on F64, F32, F16 and BF16; a masked infinity or NaN becomes zero, others keep their bits.
TEST_P(KernelsTest, MaskedInfinityAndNanBecomePositiveZero) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {inf, -inf, std::nanf(""), -0.0F, 1e-45F, 5.0F, inf, std::nanf(""), -0.0F, -1e-45F};
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  const std::vector<std::byte> before = bytes;
  Bitmask mask(10);
  for (int64_t i = 0; i < 6; ++i) mask.Set(i, false);
  EXPECT_EQ(VerifyMask(v1::DTYPE_F32, bytes, mask).violations, 5);  // -0.0 is zero
  ApplyMask(v1::DTYPE_F32, absl::MakeSpan(bytes), mask);
  for (size_t i = 0; i < 6 * sizeof(float); ++i) EXPECT_EQ(bytes[i], std::byte{0}) << i;
  EXPECT_TRUE(std::equal(bytes.begin() + 24, bytes.end(), before.begin() + 24));
  EXPECT_EQ(CountZeros(v1::DTYPE_F32, bytes), 7);
  EXPECT_EQ(CountNans(v1::DTYPE_F32, bytes), 1);
}

// known-bugs 12: past 2^24 elements a float counter stands still.
TEST_P(KernelsTest, CountsBeyondTwoToThe24Exactly) {
  constexpr int64_t kCount = 4100 * 4096;
  constexpr int64_t kNonZeros = 3;
  const auto storage = Storage::Allocate(kCount * 2);
  ASSERT_TRUE(storage.ok());
  const auto bytes = (*storage)->bytes();
  for (const size_t i : {size_t{0}, size_t{9'000'001}, size_t{kCount - 1}}) bytes[2 * i] = std::byte{1};
  EXPECT_EQ(CountZeros(v1::DTYPE_BF16, bytes), kCount - kNonZeros);
  const VerifyCounts counts = VerifyMask(v1::DTYPE_BF16, bytes, Bitmask(kCount, false));
  EXPECT_EQ(counts.zeros, kCount - kNonZeros);
  EXPECT_EQ(counts.violations, kNonZeros);
  EXPECT_EQ(MaskOfZeros(v1::DTYPE_BF16, bytes).CountKept(), kNonZeros);
}

// known-bugs 51: a 16-bit model is never taken for zeros.
TEST_P(KernelsTest, SixteenBitValuesAreNotZero) {
  for (const v1::Dtype dtype : {v1::DTYPE_F16, v1::DTYPE_BF16}) {
    for (uint32_t bits = 0; bits < 0x10000; bits += 1) {
      const uint16_t element = static_cast<uint16_t>(bits);
      std::byte bytes[2];
      std::memcpy(bytes, &element, 2);
      ASSERT_EQ(CountZeros(dtype, bytes), bits == 0 || bits == 0x8000 ? 1 : 0) << bits;
      ASSERT_EQ(CountNans(dtype, bytes), std::isnan(Value(dtype, bytes)) ? 1 : 0) << bits;
    }
  }
}

TEST_P(KernelsTest, RefreshingAMaskChangesNothing) {
  for (const v1::Dtype dtype : PrunableDtypes()) {
    std::vector<std::byte> bytes = Patterns(dtype, 1000, 1);
    const Bitmask mask = RandomMask(1000, 2);
    ApplyMask(dtype, absl::MakeSpan(bytes), mask);
    const std::vector<std::byte> once = bytes;
    for (int i = 0; i < 20; ++i) ApplyMask(dtype, absl::MakeSpan(bytes), mask);  // known-bugs 10
    EXPECT_EQ(bytes, once);
  }
}

}  // namespace
}  // namespace espalier
