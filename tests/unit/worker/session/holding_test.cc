#include "worker/session/holding.h"

#include "tests/support/status_matchers.h"
#include "tests/support/thread_collective.h"

namespace espalier {
namespace {

TEST(HoldingTest, DescribesWhatIsHeld) {
  Holding holding;
  v1::Hello idle;
  holding.Describe(idle);
  EXPECT_EQ(idle.run(), "");

  testing::ThreadGroup group(2);
  holding.SetGroup("runs/r", 4, 1, group.share(1));
  holding.SetMasks(7, 99);
  v1::Hello hello;
  holding.Describe(hello);
  EXPECT_EQ(hello.run(), "runs/r");
  EXPECT_EQ(hello.generation(), 4);
  EXPECT_EQ(hello.rank(), 1);
  EXPECT_EQ(hello.mask_version(), 7);
  EXPECT_EQ(hello.mask_digest(), 99U);

  holding.Clear();
  v1::Hello after;
  holding.Describe(after);
  EXPECT_EQ(after.SerializeAsString(), idle.SerializeAsString());
}

TEST(HoldingTest, HeartbeatsNameTheOperation) {
  Holding holding;
  v1::Command command;
  command.set_command_id(12);
  command.set_run("runs/r");
  command.set_generation(3);
  command.mutable_save_shards();
  holding.Begin(command);
  v1::Heartbeat beat = holding.Heartbeat();
  EXPECT_EQ(beat.command_id(), 12);
  EXPECT_EQ(beat.operation(), "SaveShards");
  EXPECT_EQ(beat.generation(), 3);
  EXPECT_FALSE(beat.in_collective());
  holding.SetForming(true);
  EXPECT_TRUE(holding.Heartbeat().in_collective());
  holding.End();
  beat = holding.Heartbeat();
  EXPECT_EQ(beat.command_id(), 0);
  EXPECT_EQ(beat.operation(), "");
  EXPECT_FALSE(beat.in_collective());
  v1::Hello hello;
  holding.Describe(hello);
  EXPECT_EQ(hello.last_command_id(), 12);
}

TEST(HoldingTest, CancelsOnlyWhatIsMeant) {
  Holding holding;
  testing::ThreadGroup group(1);
  holding.SetGroup("runs/r", 4, 0, group.share(0));
  const absl::Status cause = MakeError(v1::ERROR_REASON_GENERATION_STALE, "void");
  holding.Cancel("runs/other", 9, cause);
  holding.Cancel("runs/r", 3, cause);
  EXPECT_OK(group.rank(0).Barrier({"test", 1}));
  holding.Cancel("runs/r", 4, cause);
  EXPECT_FALSE(group.rank(0).Barrier({"test", 2}).ok());
}

TEST(HoldingTest, NamesOperations) {
  v1::Command command;
  EXPECT_EQ(OperationOf(command), "");
  command.mutable_update_masks();
  EXPECT_EQ(OperationOf(command), "UpdateMasks");
}

}  // namespace
}  // namespace espalier
