#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/support/status_matchers.h"
#include "worker/collective/collective.h"

namespace espalier::testing {

template <typename T>
absl::Span<std::byte> BytesOf(std::vector<T>& values) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T));
}

// Enters every operation once as one rank, and checks what came back and what was sent. To be entered by all ranks.
inline void ExpectContract(Collective& group) {
  const int64_t world = group.world_size();
  const int64_t rank = group.rank();
  const CollectiveTag tag{"contract", 7};
  const int64_t calls_before = group.sequence();
  const int64_t sent_before = group.bytes_sent();

  std::vector<int64_t> values = {rank, -rank, int64_t{1} << 62};
  values[2] /= world;  // the sum needs all 64 bits
  ASSERT_OK(group.AllReduce(tag, absl::MakeSpan(values), ReduceOp::kSum));
  const int64_t sum = world * (world - 1) / 2;
  EXPECT_EQ(values, (std::vector<int64_t>{sum, -sum, (int64_t{1} << 62) / world * world}));
  values = {rank, -rank};
  ASSERT_OK(group.AllReduce(tag, absl::MakeSpan(values), ReduceOp::kMin));
  EXPECT_EQ(values, (std::vector<int64_t>{0, 1 - world}));
  values = {rank, -rank};
  ASSERT_OK(group.AllReduce(tag, absl::MakeSpan(values), ReduceOp::kMax));
  EXPECT_EQ(values, (std::vector<int64_t>{world - 1, 0}));
  ASSERT_OK(group.AllReduce(tag, {}, ReduceOp::kSum));

  std::vector<int32_t> mine = {static_cast<int32_t>(10 * rank), static_cast<int32_t>(10 * rank + 1)};
  std::vector<int32_t> all(2 * static_cast<size_t>(world));
  ASSERT_OK(group.AllGather(tag, BytesOf(mine), BytesOf(all)));
  for (int64_t r = 0; r < world; ++r) {
    EXPECT_EQ(all[static_cast<size_t>(2 * r)], 10 * r);
    EXPECT_EQ(all[static_cast<size_t>(2 * r + 1)], 10 * r + 1);
  }
  ASSERT_OK(group.AllGather(tag, {}, {}));

  // Rank r brings 3 r bytes: rank 0 none.
  const int root = static_cast<int>(world - 1);
  std::vector<int64_t> sizes(static_cast<size_t>(world));
  for (int64_t r = 0; r < world; ++r) sizes[static_cast<size_t>(r)] = 3 * r;
  std::vector<char> part(static_cast<size_t>(3 * rank), static_cast<char>('a' + rank));
  std::vector<char> whole(static_cast<size_t>(rank == root ? 3 * sum : 0));
  ASSERT_OK(group.GatherTo(tag, root, BytesOf(part), sizes, BytesOf(whole)));
  std::string expected;
  for (int64_t r = 0; r < world; ++r) expected += std::string(static_cast<size_t>(3 * r), static_cast<char>('a' + r));
  EXPECT_EQ(std::string(whole.begin(), whole.end()), rank == root ? expected : "");

  std::vector<int64_t> word = {rank == root ? int64_t{42} : int64_t{-1}};
  ASSERT_OK(group.Broadcast(tag, root, BytesOf(word)));
  EXPECT_EQ(word[0], 42);
  ASSERT_OK(group.Broadcast(tag, 0, {}));
  ASSERT_OK(group.Barrier(tag));

  EXPECT_EQ(group.sequence(), calls_before + 10);
  EXPECT_FALSE(group.in_call());
  const int64_t reduces = 24 + 16 + 16;
  const int64_t gathers = 8 * (world - 1) + (rank == root ? 0 : 3 * rank);
  EXPECT_EQ(group.bytes_sent() - sent_before, world == 1 ? 0 : reduces + gathers + (rank == root ? 8 : 0));
}

}  // namespace espalier::testing
