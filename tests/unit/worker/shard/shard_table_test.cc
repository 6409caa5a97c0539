#include "worker/shard/shard_table.h"

#include <vector>

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using testing::HasReason;

v1::Parameter Make(const std::string& name, std::vector<int64_t> shape, std::vector<std::string> aliases = {}) {
  v1::Parameter parameter;
  parameter.set_name(name);
  parameter.set_dtype(v1::DTYPE_BF16);
  for (const int64_t dimension : shape) parameter.add_shape(dimension);
  for (const std::string& alias : aliases) parameter.add_aliases(alias);
  return parameter;
}

std::shared_ptr<Storage> Bytes(int64_t count) {
  auto storage = Storage::Allocate(count);
  return storage.ok() ? *storage : nullptr;
}

TEST(ShardTableTest, NamesAreSortedAndBytesAreSummed) {
  ShardTable table(1, 2);
  ASSERT_OK(table.Add(Make("b", {4, 2}), {4, 8}, Bytes(8)));
  ASSERT_OK(table.Add(Make("a", {1}), {1, 1}, Bytes(0)));
  ASSERT_OK(table.Add(Make("B", {}), {0, 1}, Bytes(2)));
  EXPECT_THAT(table.names(), ElementsAre("B", "a", "b"));
  EXPECT_EQ(table.total_bytes(), 10);
  EXPECT_EQ(table.rank(), 1);
  EXPECT_EQ(table.world_size(), 2);
}

TEST(ShardTableTest, AliasesLeadToTheOneParameter) {
  ShardTable table(0, 1);
  ASSERT_OK(table.Add(Make("embed.weight", {2, 2}, {"head.weight"}), {0, 4}, Bytes(8)));
  ASSERT_OK_AND_ASSIGN(const Shard shard, table.Lookup("head.weight"));
  EXPECT_EQ(shard.parameter->name(), "embed.weight");
  EXPECT_THAT(table.names(), ElementsAre("embed.weight"));
  EXPECT_EQ(table.total_bytes(), 8);
  EXPECT_THAT(table.Add(Make("head.weight", {1}), {0, 1}, Bytes(2)), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(table.Add(Make("x", {1}, {"embed.weight"}), {0, 1}, Bytes(2)), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(table.names(), ElementsAre("embed.weight"));
}

// known-bugs 1: a look-up after a re-bind sees the tensor that is live then; what was looked up before stays readable.
TEST(ShardTableTest, LookUpsSeeTheStorageThatIsBoundNow) {
  ShardTable table(0, 1);
  ASSERT_OK(table.Add(Make("w", {2}, {"tied"}), {0, 2}, Bytes(4)));
  ASSERT_OK_AND_ASSIGN(const Shard before, table.Lookup("w"));
  std::shared_ptr<Storage> rebuilt = Bytes(4);
  rebuilt->bytes()[0] = std::byte{7};
  ASSERT_OK(table.Rebind("tied", rebuilt));
  ASSERT_OK_AND_ASSIGN(const Shard after, table.Lookup("w"));
  EXPECT_EQ(after.storage, rebuilt);
  EXPECT_EQ(after.parameter, before.parameter);
  EXPECT_NE(before.storage, after.storage);
  EXPECT_EQ(before.storage->bytes()[0], std::byte{0});
}

TEST(ShardTableTest, RefusesWhatDoesNotFit) {
  ShardTable table(0, 1);
  EXPECT_THAT(table.Add(Make("w", {4}), {0, 4}, Bytes(6)), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(table.Add(Make("w", {4}), {0, 4}, nullptr), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(table.Add(Make("w", {4}), {2, 6}, Bytes(8)), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(table.Add(Make("w", {4}), {3, 2}, Bytes(0)), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_TRUE(table.names().empty());
  ASSERT_OK(table.Add(Make("w", {4}), {0, 4}, Bytes(8)));
  EXPECT_THAT(table.Add(Make("w", {4}), {0, 4}, Bytes(8)), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(table.Rebind("w", Bytes(4)), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(table.Rebind("v", Bytes(4)), HasReason(v1::ERROR_REASON_PARAMETER_NOT_FOUND));
}

TEST(ShardTableTest, NamesTheParameterThatIsNotThere) {
  const ShardTable table(0, 1);
  const auto shard = table.Lookup("model.nope");
  EXPECT_THAT(shard, HasReason(v1::ERROR_REASON_PARAMETER_NOT_FOUND, ::testing::HasSubstr("model.nope")));
  EXPECT_EQ(MetadataOf(shard.status(), "parameter"), "model.nope");
}

}  // namespace
}  // namespace espalier
