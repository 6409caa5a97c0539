#include "worker/session/command_queue.h"

#include <thread>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace espalier {
namespace {

v1::Command Part(int64_t id, const std::string& parameter, int64_t target, bool last) {
  v1::Command part;
  part.set_command_id(id);
  part.set_run("runs/r");
  part.set_generation(1);
  part.set_last_part(last);
  part.mutable_update_masks()->mutable_spec()->add_parameters(parameter);
  part.mutable_update_masks()->mutable_spec()->add_targets(target);
  return part;
}

TEST(CommandQueueTest, HandsCommandsOutInOrder) {
  testing::FakeClock clock;
  CommandQueue queue(clock);
  for (int64_t id = 1; id <= 5; ++id) queue.Push(Part(id, "p", id, true));
  for (int64_t id = 1; id <= 5; ++id) EXPECT_EQ(queue.Pop()->command.command_id(), id);
}

TEST(CommandQueueTest, MergesParts) {
  testing::FakeClock clock;
  CommandQueue queue(clock);
  queue.Push(Part(1, "a", 10, false));
  queue.Push(Part(1, "b", 20, false));
  clock.Advance(absl::Seconds(5));
  queue.Push(Part(1, "c", 30, true));
  const std::optional<QueuedCommand> merged = queue.Pop();
  ASSERT_TRUE(merged);
  const v1::UpdateSpec& spec = merged->command.update_masks().spec();
  EXPECT_EQ(std::vector<std::string>(spec.parameters().begin(), spec.parameters().end()),
            (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(std::vector<int64_t>(spec.targets().begin(), spec.targets().end()), (std::vector<int64_t>{10, 20, 30}));
  EXPECT_EQ(merged->received, clock.Monotonic());
}

TEST(CommandQueueTest, ForgetsPartsOfABrokenStream) {
  testing::FakeClock clock;
  CommandQueue queue(clock);
  queue.Push(Part(1, "a", 10, false));
  queue.DropPartial();
  queue.Push(Part(1, "a", 10, false));
  queue.Push(Part(1, "b", 20, true));
  EXPECT_EQ(queue.Pop()->command.update_masks().spec().parameters_size(), 2);
}

TEST(CommandQueueTest, PartsOfAnotherCommandDropTheIncompleteOne) {
  testing::FakeClock clock;
  CommandQueue queue(clock);
  queue.Push(Part(1, "a", 10, false));
  queue.Push(Part(2, "b", 20, true));
  const std::optional<QueuedCommand> command = queue.Pop();
  EXPECT_EQ(command->command.command_id(), 2);
  EXPECT_EQ(command->command.update_masks().spec().parameters_size(), 1);
}

TEST(CommandQueueTest, WholeCommandsDoNotMeddleWithParts) {
  testing::FakeClock clock;
  CommandQueue queue(clock);
  queue.Push(Part(1, "a", 10, false));
  v1::Command leave;
  leave.mutable_leave_group();
  queue.PushWhole(leave);
  queue.Push(Part(1, "b", 20, true));
  EXPECT_TRUE(queue.Pop()->command.has_leave_group());
  EXPECT_EQ(queue.Pop()->command.update_masks().spec().parameters_size(), 2);
}

TEST(CommandQueueTest, CloseWakesWhoWaits) {
  testing::FakeClock clock;
  CommandQueue queue(clock);
  std::thread waiting([&] { EXPECT_FALSE(queue.Pop()); });
  queue.Close();
  waiting.join();
  queue.Push(Part(1, "a", 10, true));
  EXPECT_FALSE(queue.Pop());
}

}  // namespace
}  // namespace espalier
