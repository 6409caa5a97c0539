#pragma once

// What every accelerator does: the same as the kernels of mask/ and select/ on the CPU, to the bit. Instantiated with the
// accelerators that a build has.

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/device/accelerator.h"
#include "worker/mask/kernels.h"
#include "worker/select/kernels.h"
#include "worker/shard/dtype.h"
#include "worker/shard/storage.h"

namespace espalier {

// Zeros of both signs, infinities, NaNs, denormals, ties and everything else.
inline std::vector<std::byte> MixedElements(v1::Dtype dtype, int64_t count, uint64_t seed) {
  const auto width = static_cast<size_t>(DtypeSize(dtype));
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(count) * width);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    uint64_t bits = random();
    const uint64_t kind = random() % 6;
    if (kind == 0) bits = 0;
    if (kind == 1) bits = uint64_t{1} << (8 * width - 1);
    if (kind == 2) bits = ~uint64_t{0} << (bits % (8 * width));
    if (kind == 3) bits %= 7;
    std::memcpy(&bytes[i * width], &bits, width);
  }
  return bytes;
}

inline Bitmask MixedMask(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bitmask mask(count);
  for (uint64_t& word : mask.words()) word &= random() | random();
  return mask;
}

inline std::vector<v1::Dtype> EveryDtype() {
  std::vector<v1::Dtype> all;
  for (int i = v1::DTYPE_UNSPECIFIED + 1; i < v1::Dtype_ARRAYSIZE; ++i) all.push_back(static_cast<v1::Dtype>(i));
  return all;
}

inline void ExpectSameHistogram(const Magnitudes& device, const Magnitudes& host, const Bitmask* first) {
  Histogrammer histogrammer;
  const int bits = host.format().bits;
  const int width = 15;
  uint64_t prefix = 0;
  for (int left = bits; left > 0;) {
    const RadixPass pass{prefix, std::min(width, left), left - std::min(width, left)};
    Histogram theirs, ours;
    theirs.Reset(pass.bins());
    ours.Reset(pass.bins());
    histogrammer.Add(device, pass, first, theirs);
    histogrammer.Add(host, pass, first, ours);
    uint64_t fullest = 0;
    for (size_t bin = 0; bin < pass.bins(); ++bin) {
      ASSERT_EQ(theirs[bin], ours[bin]) << "bin " << bin << " of prefix " << prefix;
      if (ours[bin] > ours[fullest]) fullest = bin;
    }
    prefix = prefix << pass.width | fullest;
    left = pass.shift;
  }
}

// Expects an accelerator in use.
inline void CheckAccelerator(v1::Dtype dtype, int64_t count, uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << DtypeName(dtype) << " x " << count << " seed " << seed);
  std::vector<std::byte> host = MixedElements(dtype, count, seed);
  const std::shared_ptr<Storage> storage = Storage::Allocate(static_cast<int64_t>(host.size())).value();
  const absl::Span<std::byte> device = storage->bytes();
  std::copy(host.begin(), host.end(), device.begin());
  ASSERT_TRUE(host.empty() || AcceleratorOf(device.data()) != nullptr);
  ASSERT_EQ(AcceleratorOf(host.data()), nullptr);

  const Bitmask mask = MixedMask(count, seed + 1);
  EXPECT_EQ(CountZeros(dtype, device), CountZeros(dtype, host));
  EXPECT_EQ(CountNans(dtype, device), CountNans(dtype, host));
  EXPECT_EQ(MaskOfZeros(dtype, device), MaskOfZeros(dtype, host));
  if (!IsPrunableDtype(dtype)) return;

  const Magnitudes theirs{dtype, device}, ours{dtype, host};
  std::mt19937_64 random(seed + 2);
  for (const Bitmask* first : {static_cast<const Bitmask*>(nullptr), &mask}) {
    ExpectSameHistogram(theirs, ours, first);
    for (const uint64_t threshold : {uint64_t{0}, uint64_t{3}, random() & ours.format().nan, ours.format().nan}) {
      const OrderCounts a = CountAt(theirs, threshold, first), b = CountAt(ours, threshold, first);
      EXPECT_EQ(a.below, b.below);
      EXPECT_EQ(a.equal, b.equal);
      for (const int64_t kept : {int64_t{0}, int64_t{1}, b.equal / 2, b.equal}) {
        EXPECT_EQ(BuildMask(theirs, threshold, kept, first), BuildMask(ours, threshold, kept, first))
            << "threshold " << threshold << ", " << kept << " ties kept";
      }
    }
  }
  const VerifyCounts a = VerifyMask(dtype, device, mask), b = VerifyMask(dtype, host, mask);
  EXPECT_EQ(a.zeros, b.zeros);
  EXPECT_EQ(a.violations, b.violations);
  ApplyMask(dtype, device, mask);
  ApplyMask(dtype, absl::MakeSpan(host), mask);
  EXPECT_TRUE(std::equal(host.begin(), host.end(), device.begin()));
  EXPECT_EQ(VerifyMask(dtype, device, mask).violations, 0);
}

}  // namespace espalier
