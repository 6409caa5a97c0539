#include "worker/session/executor.h"

#include <deque>

#include "proto/support/errors.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::HasReason;

// What an executor sends, and how often it executed.
class Recorder {
 public:
  void Send(v1::WorkerMessage message) {
    MutexLock lock(mutex_);
    sent_.push_back(std::move(message));
    changed_.SignalAll();
  }
  v1::WorkerMessage Next() {
    MutexLock lock(mutex_);
    while (sent_.empty()) changed_.Wait(mutex_);
    v1::WorkerMessage message = std::move(sent_.front());
    sent_.pop_front();
    return message;
  }
  bool empty() {
    MutexLock lock(mutex_);
    return sent_.empty();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::WorkerMessage> sent_ ABSL_GUARDED_BY(mutex_);
};

v1::Command Load(int64_t id, int64_t generation = 1) {
  v1::Command command;
  command.set_command_id(id);
  command.set_run("runs/r");
  command.set_generation(generation);
  command.set_last_part(true);
  command.mutable_load_model()->set_path("p");
  return command;
}

class ExecutorTest : public ::testing::Test {
 protected:
  void Start(std::function<absl::Status(const CommandContext&, CommandResult&)> execute) {
    executor_ = std::make_unique<Executor>(
        queue_, gate_, &holding_, clock_,
        ExecutorOptions{.execute = std::move(execute),
                        .send = [this](v1::WorkerMessage message) { sent_.Send(std::move(message)); }});
    executor_->SetCoordinator("one");
  }

  testing::FakeClock clock_;
  CommandQueue queue_{clock_};
  GenerationGate gate_;
  Holding holding_;
  Recorder sent_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorTest, SendsPagesThenTheAck) {
  Start([](const CommandContext&, CommandResult& result) {
    result.pages.resize(2);
    result.ack.mutable_load_model()->set_shard_bytes(5);
    return absl::OkStatus();
  });
  queue_.Push(Load(7, 3));
  for (int i = 0; i < 2; ++i) {
    const v1::WorkerMessage page = sent_.Next();
    ASSERT_TRUE(page.has_page());
    EXPECT_EQ(page.page().command_id(), 7);
    EXPECT_EQ(page.page().generation(), 3);
  }
  const v1::WorkerMessage ack = sent_.Next();
  ASSERT_TRUE(ack.has_ack());
  EXPECT_EQ(ack.ack().command_id(), 7);
  EXPECT_EQ(ack.ack().generation(), 3);
  EXPECT_EQ(ack.ack().load_model().shard_bytes(), 5);
  EXPECT_OK(FromProto(ack.ack().status()));
}

TEST_F(ExecutorTest, AResendIsAnsweredAndNotExecutedAgain) {  // known-bugs 66
  int executed = 0;
  Start([&](const CommandContext&, CommandResult& result) {
    result.pages.resize(1);
    result.ack.mutable_load_model()->set_shard_bytes(++executed);
    return absl::OkStatus();
  });
  for (int i = 0; i < 2; ++i) {
    queue_.Push(Load(1));
    EXPECT_TRUE(sent_.Next().has_page());
    EXPECT_EQ(sent_.Next().ack().load_model().shard_bytes(), 1);
  }
  // To another coordinator the same id is another command.
  executor_->SetCoordinator("two");
  queue_.Push(Load(1));
  EXPECT_TRUE(sent_.Next().has_page());
  EXPECT_EQ(sent_.Next().ack().load_model().shard_bytes(), 2);
}

TEST_F(ExecutorTest, AFailedCommandHasNoResult) {
  Start([](const CommandContext&, CommandResult& result) {
    result.pages.resize(1);
    result.ack.mutable_load_model()->set_shard_bytes(5);
    return MakeError(v1::ERROR_REASON_CHECKPOINT_INVALID, "torn", {{"file", "f"}});
  });
  queue_.Push(Load(1));
  const v1::WorkerMessage message = sent_.Next();
  ASSERT_TRUE(message.has_ack());
  EXPECT_FALSE(message.ack().has_load_model());
  EXPECT_THAT(FromProto(message.ack().status()), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID));
}

TEST_F(ExecutorTest, AStaleGenerationIsRefusedAndNotExecuted) {
  int executed = 0;
  Start([&](const CommandContext&, CommandResult&) {
    ++executed;
    return absl::OkStatus();
  });
  queue_.Push(Load(1, 5));
  EXPECT_OK(FromProto(sent_.Next().ack().status()));
  queue_.Push(Load(2, 4));
  EXPECT_THAT(FromProto(sent_.Next().ack().status()), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  gate_.Void("runs/r", 5);
  queue_.Push(Load(3, 5));
  EXPECT_THAT(FromProto(sent_.Next().ack().status()), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  executor_.reset();
  EXPECT_EQ(executed, 1);
}

TEST_F(ExecutorTest, DeadlinesCountFromReceipt) {
  absl::Duration left;
  Start([&](const CommandContext& context, CommandResult&) {
    clock_.Advance(absl::Seconds(3));
    left = context.Left();
    return absl::OkStatus();
  });
  v1::Command command = Load(1);
  command.mutable_deadline()->set_seconds(10);
  queue_.Push(command);
  const v1::WorkerMessage ack = sent_.Next();
  EXPECT_EQ(left, absl::Seconds(7));
  EXPECT_EQ(ack.ack().elapsed().seconds(), 3);
}

TEST_F(ExecutorTest, ProgressIsThinned) {
  Start([&](const CommandContext& context, CommandResult&) {
    for (int i = 0; i < 1000; ++i) {
      if (i == 500) clock_.Advance(absl::Milliseconds(150));
      context.progress("load", i, 1000, "bytes");
    }
    return absl::OkStatus();
  });
  queue_.Push(Load(1));
  EXPECT_EQ(sent_.Next().progress().done(), 0);
  EXPECT_EQ(sent_.Next().progress().done(), 500);
  EXPECT_TRUE(sent_.Next().has_ack());
}

TEST_F(ExecutorTest, ACommandWithoutIdIsNotAnswered) {
  int executed = 0;
  Start([&](const CommandContext&, CommandResult&) {
    ++executed;
    return absl::OkStatus();
  });
  v1::Command own;
  own.mutable_leave_group();
  queue_.PushWhole(own);
  queue_.Push(Load(1));
  EXPECT_EQ(sent_.Next().ack().command_id(), 1);
  EXPECT_TRUE(sent_.empty());
  executor_.reset();
  EXPECT_EQ(executed, 2);
}

}  // namespace
}  // namespace espalier
