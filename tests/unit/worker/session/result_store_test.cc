#include "worker/session/result_store.h"

#include "gtest/gtest.h"

namespace espalier {
namespace {

std::shared_ptr<const CommandResult> Result(int64_t id) {
  auto result = std::make_shared<CommandResult>();
  result->ack.set_command_id(id);
  return result;
}

TEST(ResultStoreTest, KeepsTheLastOnes) {
  ResultStore store;
  store.SetCoordinator("one");
  const auto kept = static_cast<int64_t>(ResultStore::kKept);
  for (int64_t id = 1; id <= kept + 2; ++id) store.Put(id, Result(id));
  EXPECT_EQ(store.Find(1), nullptr);
  EXPECT_TRUE(store.Forgotten(2));
  EXPECT_FALSE(store.Forgotten(3));
  ASSERT_NE(store.Find(3), nullptr);
  EXPECT_EQ(store.Find(3)->ack.command_id(), 3);
  EXPECT_EQ(store.Find(kept + 3), nullptr);
  EXPECT_FALSE(store.Forgotten(kept + 3));
}

TEST(ResultStoreTest, IdsOfAnotherCoordinatorMeanOtherCommands) {
  ResultStore store;
  store.SetCoordinator("one");
  store.Put(1, Result(1));
  store.SetCoordinator("one");
  EXPECT_NE(store.Find(1), nullptr);
  store.SetCoordinator("two");
  EXPECT_EQ(store.Find(1), nullptr);
  EXPECT_FALSE(store.Forgotten(1));
}

}  // namespace
}  // namespace espalier
