#include "worker/mask/bitmask.h"

#include "gtest/gtest.h"

namespace espalier {
namespace {

TEST(BitmaskTest, KeepsOrPrunesAllAtFirst) {
  for (const int64_t size : {0, 1, 63, 64, 65, 128, 1000}) {
    EXPECT_EQ(Bitmask(size).CountKept(), size);
    EXPECT_EQ(Bitmask(size).CountPruned(), 0);
    EXPECT_EQ(Bitmask(size, false).CountKept(), 0);
    EXPECT_EQ(Bitmask(size, false).CountPruned(), size);
    EXPECT_EQ(Bitmask(size).words().size(), static_cast<size_t>((size + 63) / 64));
  }
}

TEST(BitmaskTest, BitsPastTheEndAreZero) {
  EXPECT_EQ(Bitmask(3).words()[0], 0b111u);
  EXPECT_EQ(Bitmask(66).words()[1], 0b11u);
}

TEST(BitmaskTest, SetsSingleElements) {
  Bitmask mask(130);
  for (const int64_t i : {0, 63, 64, 129}) mask.Set(i, false);
  EXPECT_EQ(mask.CountPruned(), 4);
  EXPECT_FALSE(mask.Keeps(64));
  EXPECT_TRUE(mask.Keeps(65));
  mask.Set(64, true);
  EXPECT_TRUE(mask.Keeps(64));
  EXPECT_EQ(mask.CountPruned(), 3);
}

TEST(BitmaskTest, EqualMeansSameSizeAndBits) {
  Bitmask a(70);
  Bitmask b(70);
  EXPECT_EQ(a, b);
  b.Set(69, false);
  EXPECT_NE(a, b);
  EXPECT_NE(Bitmask(70), Bitmask(71));
}

}  // namespace
}  // namespace espalier
