// Two ranks as two sessions of one process, in a group of threads.

#include <thread>

#include "proto/support/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/support/thread_collective.h"
#include "tests/unit/worker/session/session_harness.h"
#include "worker/session/vote.h"

namespace espalier {
namespace {

using testing::Commands;
using testing::FakeCoordinator;
using testing::FakeGroups;
using testing::FakeSession;
using testing::HasReason;
using ::testing::HasSubstr;
using testing::Ramp;
using testing::RowOf;
using testing::RunningSession;
using testing::TempDir;
using testing::ThreadGroup;

// A rank whose vote says that it selected something else.
class Dissenter final : public Collective {
 public:
  explicit Dissenter(std::shared_ptr<Collective> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  absl::Status AllReduce(const CollectiveTag& tag, absl::Span<int64_t> values, ReduceOp op) override {
    return inner_->AllReduce(tag, values, op);
  }
  absl::Status AllGather(const CollectiveTag& tag, absl::Span<const std::byte> in, absl::Span<std::byte> out) override {
    if (tag.operation != "vote") return inner_->AllGather(tag, in, out);
    const VoteRecord other = EncodeVote({.ok = true, .rank = rank(), .generation = 1, .version = 1});
    return inner_->AllGather(tag, other, out);
  }
  absl::Status GatherTo(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                        absl::Span<const int64_t> sizes, absl::Span<std::byte> out) override {
    return inner_->GatherTo(tag, root, in, sizes, out);
  }
  absl::Status Broadcast(const CollectiveTag& tag, int root, absl::Span<std::byte> data) override {
    return inner_->Broadcast(tag, root, data);
  }
  absl::Status Barrier(const CollectiveTag& tag) override { return inner_->Barrier(tag); }
  void SetDeadline(absl::Duration deadline) override { inner_->SetDeadline(deadline); }
  int64_t sequence() const override { return inner_->sequence(); }
  bool in_call() const override { return inner_->in_call(); }
  int64_t bytes_sent() const override { return inner_->bytes_sent(); }
  void Cancel(const absl::Status& cause) override { inner_->Cancel(cause); }

 private:
  const std::shared_ptr<Collective> inner_;
};

class SessionGroupTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  SessionGroupTest() { testing::WriteTinyModel(model_, {{"a.weight", Ramp(5, 6)}, {"b.weight", Ramp(3, 5)}}); }

  void SetUp() override {
    for (int r = 0; r < kRanks; ++r) {
      groups_.push_back(std::make_unique<FakeGroups>(group_.share(r)));
      workers_.push_back(std::make_unique<RunningSession>(coordinator_, *groups_.back(), absl::StrCat("w", r)));
      sessions_.push_back(coordinator_.Accept());
      ASSERT_NE(sessions_.back(), nullptr);
    }
  }

  // The same command to both, and both answers.
  std::vector<FakeSession::Answer> RunBoth(const v1::Command& command) {
    for (const auto& session : sessions_) session->Send(command);
    std::vector<FakeSession::Answer> answers;
    for (const auto& session : sessions_) answers.push_back(session->Await(command.command_id()).value());
    return answers;
  }
  void Load() {
    v1::Command join = commands_.Join(0, kRanks);
    for (int r = 0; r < kRanks; ++r) {
      join.mutable_join_group()->set_rank(r);
      EXPECT_OK(sessions_[r]->Run(join)->status());
    }
    for (const auto& answer : RunBoth(commands_.Load(model_))) EXPECT_OK(answer.status());
  }
  int64_t ZerosOf(const std::string& name) {
    const auto report = RunBoth(commands_.Report());
    EXPECT_OK(report[0].status());
    EXPECT_TRUE(report[1].pages.empty());
    return RowOf(report[0], name).zeros();
  }

  TempDir dir_;
  const std::string model_ = dir_ / "model";
  FakeCoordinator coordinator_;
  ThreadGroup group_{kRanks};
  Commands commands_;
  std::vector<std::unique_ptr<FakeGroups>> groups_;
  std::vector<std::unique_ptr<RunningSession>> workers_;
  std::vector<std::shared_ptr<FakeSession>> sessions_;
};

TEST_F(SessionGroupTest, UpdatesTogether) {
  Load();
  const auto updated = RunBoth(commands_.Update(1, {{"a.weight", 15}, {"b.weight", 4}}));
  int64_t masked = 0;
  for (const auto& answer : updated) {
    ASSERT_OK(answer.status());
    masked += answer.pages.at(0).counts().counts(0);
    EXPECT_GT(answer.ack.update_masks().bytes_sent(), 0);
  }
  EXPECT_EQ(masked, 15);
  EXPECT_EQ(updated[0].ack.update_masks().selection_hash(), updated[1].ack.update_masks().selection_hash());
  EXPECT_EQ(ZerosOf("a.weight"), 15);
  EXPECT_EQ(ZerosOf("b.weight"), 4);
}

TEST_F(SessionGroupTest, GathersAcrossRanks) {
  Load();
  // Rank 0 owns rows 0 to 2, that is elements 0 to 17.
  for (const auto& answer : RunBoth(commands_.Gather("a.weight", 16, 20))) ASSERT_OK(answer.status());
  const auto upload = coordinator_.NextUpload();
  ASSERT_TRUE(upload);
  const float want[] = {17, 18, 19, 20};
  ASSERT_EQ(upload->bytes.size(), sizeof want);
  EXPECT_EQ(std::memcmp(upload->bytes.data(), want, sizeof want), 0);
  EXPECT_EQ(upload->first.worker(), "w0");
}

TEST_F(SessionGroupTest, ALostUploadLeavesNoRankAlone) {
  Load();
  coordinator_.AnswerUploads({grpc::StatusCode::NOT_FOUND, "nobody waits"});
  const auto answers = RunBoth(commands_.Gather("a.weight", 0, 30));
  EXPECT_EQ(answers[0].status().code(), absl::StatusCode::kNotFound);
  EXPECT_OK(answers[1].status());
  EXPECT_EQ(ZerosOf("a.weight"), 0);
}

TEST_F(SessionGroupTest, NobodyAdoptsWhenTheVoteIsSplit) {
  groups_[1]->Set(std::make_shared<Dissenter>(group_.share(1)));
  Load();
  for (const auto& answer : RunBoth(commands_.Update(1, {{"a.weight", 15}}))) {
    EXPECT_THAT(answer.status(), HasReason(v1::ERROR_REASON_STATE_DIVERGED, HasSubstr("rank 1")));
    EXPECT_TRUE(answer.pages.empty());
    EXPECT_FALSE(answer.ack.has_update_masks());
  }
  // The generation is void: nothing of it is reported, read or saved.
  EXPECT_THAT(RunBoth(commands_.Report())[0].status(), HasReason(v1::ERROR_REASON_STATE_DIVERGED));
  EXPECT_THAT(RunBoth(commands_.Gather("a.weight", 0, 30))[1].status(), HasReason(v1::ERROR_REASON_STATE_DIVERGED));
  for (const auto& session : sessions_) session->Cut();
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(coordinator_.Accept()->hello().mask_version(), 0);
}

TEST_F(SessionGroupTest, ADeadPeerFailsTheVote) {  // known-bugs 35
  Load();
  const v1::Command update = commands_.Update(1, {{"a.weight", 15}});
  sessions_[0]->Send(update);
  EXPECT_TRUE(sessions_[0]->AwaitHeartbeat([](const v1::Heartbeat& beat) { return beat.in_collective(); }));
  group_.Lose(1);
  const auto answer = sessions_[0]->Await(update.command_id());
  EXPECT_THAT(answer->status(), HasReason(v1::ERROR_REASON_WORKER_LOST));
  EXPECT_THAT(sessions_[0]->Run(commands_.Report())->status(), HasReason(v1::ERROR_REASON_WORKER_LOST));
}

TEST_F(SessionGroupTest, HeartbeatsSayWhereARankWaits) {  // known-bugs 34, 89
  Load();
  const v1::Command report = commands_.Report();
  sessions_[0]->Send(report);
  int64_t sequence = 0;
  // Not once: as long as it waits.
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(sessions_[0]->AwaitHeartbeat([&](const v1::Heartbeat& beat) {
      sequence = beat.collective_sequence();
      return beat.in_collective() && beat.command_id() == report.command_id() && beat.operation() == "ReportSparsity";
    }));
  }
  EXPECT_TRUE(sessions_[1]->AwaitHeartbeat([&](const v1::Heartbeat& beat) {
    return !beat.in_collective() && beat.collective_sequence() < sequence && beat.generation() == 1;
  }));
  sessions_[1]->Send(report);
  for (const auto& session : sessions_) EXPECT_OK(session->Await(report.command_id())->status());
}

TEST_F(SessionGroupTest, ABusyWorkerInspects) {
  Load();
  const v1::Command report = commands_.Report();
  sessions_[0]->Send(report);
  EXPECT_TRUE(sessions_[0]->AwaitHeartbeat([](const v1::Heartbeat& beat) { return beat.in_collective(); }));
  EXPECT_OK(sessions_[0]->Run(commands_.Inspect(model_))->status());
  sessions_[1]->Send(report);
  EXPECT_OK(sessions_[1]->Await(report.command_id())->status());
}

TEST_F(SessionGroupTest, AVoidGenerationEndsAWait) {  // known-bugs 36
  Load();
  const v1::Command report = commands_.Report();
  sessions_[0]->Send(report);
  EXPECT_TRUE(sessions_[0]->AwaitHeartbeat([](const v1::Heartbeat& beat) { return beat.in_collective(); }));
  sessions_[0]->Void("runs/r", 1, "rank 1 is lost");
  EXPECT_THAT(sessions_[0]->Await(report.command_id())->status(), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  EXPECT_TRUE(sessions_[0]->AwaitHeartbeat([](const v1::Heartbeat& beat) { return beat.generation() == 0; }));
}

TEST_F(SessionGroupTest, ACommandOutlivesItsStream) {
  Load();
  const v1::Command report = commands_.Report();
  sessions_[0]->Send(report);
  EXPECT_TRUE(sessions_[0]->AwaitHeartbeat([](const v1::Heartbeat& beat) { return beat.in_collective(); }));
  sessions_[0]->Cut();
  const std::shared_ptr<FakeSession> again = coordinator_.Accept();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->hello().generation(), 1);
  again->Send(report);
  sessions_[1]->Send(report);
  EXPECT_OK(again->Await(report.command_id())->status());
}

}  // namespace
}  // namespace espalier
