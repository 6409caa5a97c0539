#include "worker/mask/mask_rows.h"

#include <random>

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using testing::HasReason;
using Shape = std::vector<int64_t>;

Bitmask Random(int64_t size) {
  std::mt19937_64 random(11);
  Bitmask mask(size);
  for (int64_t i = 0; i < size; ++i) mask.Set(i, random() % 3 != 0);
  return mask;
}

TEST(MaskRowsTest, ShapesAreWholeBytesARow) {
  EXPECT_THAT(PackedShape(Shape{}), ElementsAre(1, 1));
  EXPECT_THAT(PackedShape(Shape{5}), ElementsAre(5, 1));
  EXPECT_THAT(PackedShape(Shape{4, 9}), ElementsAre(4, 2));
  EXPECT_THAT(PackedShape(Shape{4, 8}), ElementsAre(4, 1));
  EXPECT_THAT(PackedShape(Shape{6, 8, 3, 3}), ElementsAre(6, 9));
  EXPECT_THAT(PackedShape(Shape{4, 0}), ElementsAre(4, 0));
  EXPECT_THAT(PackedShape(Shape{0}), ElementsAre(0, 1));
}

TEST(MaskRowsTest, FirstElementIsTheLowestBit) {
  Bitmask mask(20, false);  // two rows of ten
  for (const int64_t i : {0, 9, 11, 18}) mask.Set(i, true);
  EXPECT_THAT(PackRows(Shape{2, 10}, {0, 20}, mask), ElementsAre(0b1, 0b10, 0b10, 0b1));
}

TEST(MaskRowsTest, ReadsBackEveryShape) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{13}, Shape{0}, Shape{3, 0}, Shape{4, 1}, Shape{5, 7}, Shape{5, 8},
                             Shape{9, 9}, Shape{7, 63}, Shape{7, 64}, Shape{7, 65}, Shape{3, 5, 3, 3}, Shape{2, 576}}) {
    const ShardRange whole = {0, NumElements(shape)};
    const Bitmask mask = Random(whole.size());
    const std::vector<uint8_t> packed = PackRows(shape, whole, mask);
    const auto [rows, bytes] = PackedShape(shape);
    ASSERT_EQ(static_cast<int64_t>(packed.size()), rows * bytes);
    for (int64_t i = 0; i < whole.size(); ++i) {
      const int64_t row = i / RowElements(shape);
      const int64_t column = i % RowElements(shape);
      ASSERT_EQ(packed[static_cast<size_t>(row * bytes + column / 8)] >> (column % 8) & 1, mask.Keeps(i) ? 1 : 0);
    }
    ASSERT_OK_AND_ASSIGN(const Bitmask read, UnpackRows(shape, whole, packed));
    EXPECT_EQ(read, mask);
  }
}

// Ranks pack their rows alone; their bytes one after another are the packed whole.
TEST(MaskRowsTest, ShardsAreSlicesOfTheWhole) {
  const Shape shape = {7, 21};
  const Bitmask mask = Random(7 * 21);
  const std::vector<uint8_t> whole = PackRows(shape, {0, 7 * 21}, mask);
  std::vector<uint8_t> joined;
  for (int rank = 0; rank < 3; ++rank) {
    const ShardRange range = RowShard(shape, rank, 3);
    Bitmask part(range.size());
    for (int64_t i = 0; i < range.size(); ++i) part.Set(i, mask.Keeps(range.begin + i));
    const std::vector<uint8_t> packed = PackRows(shape, range, part);
    joined.insert(joined.end(), packed.begin(), packed.end());
    ASSERT_OK_AND_ASSIGN(const Bitmask read, UnpackRows(shape, range, packed));
    EXPECT_EQ(read, part);
  }
  EXPECT_EQ(joined, whole);
}

TEST(MaskRowsTest, RefusesWrongSizesAndPadding) {
  const Shape shape = {2, 10};
  EXPECT_THAT(UnpackRows(shape, {0, 20}, std::vector<uint8_t>(3)), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID));
  EXPECT_THAT(UnpackRows(shape, {0, 20}, std::vector<uint8_t>(5)), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID));
  EXPECT_THAT(UnpackRows(shape, {0, 20}, std::vector<uint8_t>{0xFF, 0x3, 0xFF, 0x7}),
              HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, ::testing::HasSubstr("row 1")));
  EXPECT_OK(UnpackRows(shape, {0, 20}, std::vector<uint8_t>{0xFF, 0x3, 0xFF, 0x3}));
}

}  // namespace
}  // namespace espalier
