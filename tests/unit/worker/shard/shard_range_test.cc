#include "worker/shard/shard_range.h"

#include <limits>

#include "gtest/gtest.h"

namespace espalier {
namespace {

using Shape = std::vector<int64_t>;

TEST(ShardRangeTest, CountsElements) {
  EXPECT_EQ(NumElements(Shape{}), 1);
  EXPECT_EQ(NumElements(Shape{7}), 7);
  EXPECT_EQ(NumElements(Shape{2, 3, 4}), 24);
  EXPECT_EQ(NumElements(Shape{4, 0}), 0);
  EXPECT_EQ(RowElements(Shape{}), 1);
  EXPECT_EQ(RowElements(Shape{7}), 1);
  EXPECT_EQ(RowElements(Shape{2, 3, 4}), 12);
}

TEST(ShardRangeTest, HostileShapesDoNotOverflow) {
  constexpr int64_t kBig = int64_t{1} << 62;
  EXPECT_EQ(NumElements(Shape{kBig, 8}), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(NumElements(Shape{kBig, 8, 0}), 0);
}

TEST(ShardRangeTest, CutsRowsLikeTorchChunk) {
  // torch.chunk(7 rows, 3): 3, 3, 1
  const Shape shape = {7, 10};
  EXPECT_EQ(RowShard(shape, 0, 3), (ShardRange{0, 30}));
  EXPECT_EQ(RowShard(shape, 1, 3), (ShardRange{30, 60}));
  EXPECT_EQ(RowShard(shape, 2, 3), (ShardRange{60, 70}));
  // torch.chunk(5 rows, 4): 2, 2, 1 and nothing for the last
  EXPECT_EQ(RowShard(Shape{5, 2}, 3, 4), (ShardRange{10, 10}));
}

TEST(ShardRangeTest, SmallTensorsWorkOnEveryWorldSize) {
  for (int world = 1; world <= 5; ++world) {
    EXPECT_EQ(RowShard(Shape{}, 0, world), (ShardRange{0, 1}));
    EXPECT_EQ(RowShard(Shape{1, 6}, 0, world), (ShardRange{0, 6}));
    for (int rank = 1; rank < world; ++rank) {
      EXPECT_TRUE(RowShard(Shape{}, rank, world).empty());
      EXPECT_TRUE(RowShard(Shape{1, 6}, rank, world).empty());
    }
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_TRUE(RowShard(Shape{0}, rank, world).empty());
      EXPECT_TRUE(RowShard(Shape{4, 0}, rank, world).empty());
    }
  }
}

TEST(ShardRangeTest, ShardsTileEveryTensorAndTheLastIsTheSmallest) {
  for (int64_t rows = 0; rows <= 17; ++rows) {
    const Shape shape = {rows, 3};
    for (int world = 1; world <= 9; ++world) {
      int64_t at = 0;
      int64_t smallest = NumElements(shape);
      for (int rank = 0; rank < world; ++rank) {
        const ShardRange range = RowShard(shape, rank, world);
        EXPECT_EQ(range.begin, at);
        at = range.end;
        smallest = std::min(smallest, range.size());
      }
      EXPECT_EQ(at, NumElements(shape));
      EXPECT_EQ(RowShard(shape, world - 1, world).size(), smallest);
    }
  }
}

}  // namespace
}  // namespace espalier
