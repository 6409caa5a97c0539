// Real workers, one process a rank, in real Gloo groups; only the coordinator is fake.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/errors.h"
#include "tests/integration/worker/worker_process.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/worker/session/session_harness.h"
#include "worker/mask/digest.h"

namespace espalier {
namespace {

using testing::Commands;
using testing::FakeCoordinator;
using testing::FakeSession;
using testing::HasReason;
using testing::Ramp;
using testing::RowOf;
using testing::TempDir;
using testing::WorkerProcess;

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() { testing::WriteTinyModel(model_, {{"a.weight", Ramp(50, 60)}, {"b.weight", Ramp(1, 9)}}); }

  void Start(int ranks, const std::vector<std::pair<std::string, std::string>>& environment = {},
             const std::string& program = ESPALIER_WORKER) {
    for (int r = 0; r < ranks; ++r) {
      workers_.push_back(
          std::make_unique<WorkerProcess>(program, coordinator_.address(), absl::StrCat("w", r), environment));
      sessions_.push_back(coordinator_.Accept());
      ASSERT_NE(sessions_.back(), nullptr);
    }
  }
  std::vector<FakeSession::Answer> RunAll(const v1::Command& command) {
    for (const auto& session : sessions_) session->Send(command);
    std::vector<FakeSession::Answer> answers;
    for (const auto& session : sessions_) answers.push_back(session->Await(command.command_id()).value());
    return answers;
  }
  // Forms the group as the coordinator does, and loads.
  void Load(int64_t generation) {
    v1::Command open = commands_.Next(generation);
    open.mutable_open_rendezvous();
    const auto opened = sessions_[0]->Run(open);
    ASSERT_OK(opened->status());
    v1::Command join = commands_.Join(0, static_cast<int>(sessions_.size()), generation);
    join.mutable_join_group()->set_store_address(opened->ack.open_rendezvous().address());
    for (size_t r = 0; r < sessions_.size(); ++r) {
      join.mutable_join_group()->set_rank(static_cast<int>(r));
      sessions_[r]->Send(join);
    }
    for (const auto& session : sessions_) ASSERT_OK(session->Await(join.command_id())->status());
    v1::Command load = commands_.Load(model_);
    load.set_generation(generation);
    for (const auto& answer : RunAll(load)) ASSERT_OK(answer.status());
  }
  v1::Command Of(int64_t generation, v1::Command command) {
    command.set_generation(generation);
    return command;
  }

  TempDir dir_;
  const std::string model_ = dir_ / "model";
  FakeCoordinator coordinator_;
  Commands commands_;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  std::vector<std::shared_ptr<FakeSession>> sessions_;
};

TEST_F(WorkerTest, ThreeRanksUpdateAndReport) {
  Start(3);
  Load(1);
  const auto updated = RunAll(commands_.Update(1, {{"a.weight", 1000}, {"b.weight", 3}}));
  std::set<uint64_t> hashes;
  uint64_t digest = 0;
  int64_t masked = 0;
  for (const auto& answer : updated) {
    ASSERT_OK(answer.status());
    hashes.insert(answer.ack.update_masks().selection_hash());
    digest = AddDigests(digest, answer.ack.update_masks().mask_digest());
    masked += answer.pages.at(0).counts().counts(0);
  }
  EXPECT_EQ(hashes.size(), 1U);
  EXPECT_EQ(masked, 1000);
  EXPECT_NE(digest, 0U);
  for (const v1::ReportMode mode : {v1::REPORT_MODE_SHARD_COUNTS, v1::REPORT_MODE_GATHER}) {
    const auto report = RunAll(commands_.Report(mode));
    ASSERT_OK(report[0].status());
    EXPECT_EQ(RowOf(report[0], "a.weight").zeros(), 1000);
    EXPECT_EQ(RowOf(report[0], "b.weight").zeros(), 3);
  }
  ASSERT_OK(RunAll(commands_.Gather("a.weight", 998, 1002))[0].status());
  const auto upload = coordinator_.NextUpload();
  ASSERT_TRUE(upload);
  const float want[] = {0, 0, 1001, 1002};
  EXPECT_EQ(upload->bytes, std::string(reinterpret_cast<const char*>(want), sizeof want));  // bytes of floats
}

TEST_F(WorkerTest, GroupsFormAgain) {
  Start(2);
  for (const int64_t generation : {1, 2, 3}) {
    Load(generation);
    const auto updated = RunAll(Of(generation, commands_.Update(1, {{"a.weight", 1000}})));
    for (const auto& answer : updated) ASSERT_OK(answer.status());
    for (const auto& answer : RunAll(Of(generation, commands_.Leave()))) ASSERT_OK(answer.status());
  }
}

TEST_F(WorkerTest, AWorkerStuckInGlooStartsAfresh) {  // known-bugs 36
  Start(2);
  Load(1);
  const std::string incarnation = sessions_[0]->hello().incarnation();
  // Rank 1 never comes.
  sessions_[0]->Send(commands_.Report());
  ASSERT_TRUE(sessions_[0]->AwaitHeartbeat([](const v1::Heartbeat& beat) { return beat.in_collective(); }));
  const absl::Time start = absl::Now();
  sessions_[0]->Void("runs/r", 1, "rank 1 is lost");
  const std::shared_ptr<FakeSession> again = coordinator_.Accept();
  ASSERT_NE(again, nullptr);
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_EQ(again->hello().worker(), "w0");
  EXPECT_NE(again->hello().incarnation(), incarnation);
  EXPECT_EQ(again->hello().run(), "");
  EXPECT_EQ(again->hello().last_command_id(), 0);
  // The peer's connections broke with the old process: it does not wait for its time-out.
  sessions_[0] = again;
  const auto alone = sessions_[1]->Run(commands_.Report());
  EXPECT_THAT(alone->status(), HasReason(v1::ERROR_REASON_WORKER_LOST));
  sessions_[1]->Void("runs/r", 1, "rank 0 is lost");
  // And both work again.
  Load(2);
  for (const auto& answer : RunAll(Of(2, commands_.Update(1, {{"a.weight", 1000}})))) EXPECT_OK(answer.status());
}

TEST_F(WorkerTest, WorkersWithoutANameHaveOneEachAndKeepItWhenTheyStartAfresh) {
  for (int r = 0; r < 2; ++r) {
    workers_.push_back(std::make_unique<WorkerProcess>(ESPALIER_WORKER, coordinator_.address(), ""));
    sessions_.push_back(coordinator_.Accept());
    ASSERT_NE(sessions_.back(), nullptr);
  }
  const std::string name = sessions_[0]->hello().worker();
  EXPECT_NE(name, sessions_[1]->hello().worker());
  Load(1);
  sessions_[0]->Send(commands_.Report());
  ASSERT_TRUE(sessions_[0]->AwaitHeartbeat([](const v1::Heartbeat& beat) { return beat.in_collective(); }));
  sessions_[0]->Void("runs/r", 1, "rank 1 is lost");
  const std::shared_ptr<FakeSession> again = coordinator_.Accept();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->hello().worker(), name);
  EXPECT_NE(again->hello().incarnation(), sessions_[0]->hello().incarnation());
}

TEST_F(WorkerTest, AKilledPeerEndsTheWaitOfTheOthers) {  // known-bugs 35
  Start(2);
  Load(1);
  const v1::Command report = commands_.Report();
  sessions_[0]->Send(report);
  ASSERT_TRUE(sessions_[0]->AwaitHeartbeat([](const v1::Heartbeat& beat) { return beat.in_collective(); }));
  const absl::Time start = absl::Now();
  workers_[1]->Signal(SIGKILL);
  EXPECT_THAT(sessions_[0]->Await(report.command_id())->status(), HasReason(v1::ERROR_REASON_WORKER_LOST));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_TRUE(sessions_[1]->AwaitEnd());
}

TEST_F(WorkerTest, ARankKilledAtTheVoteLeavesNoHalfAdoptedMask) {
  for (const std::string point : {"after_select", "before_vote", "after_vote", "in_swap"}) {
    SCOPED_TRACE(point);
    workers_.clear();
    sessions_.clear();
    const std::string log = dir_ / ("faults-" + point);
    Start(2, {{"ESPALIER_FAULT", point + "@1=kill"}, {"ESPALIER_FAULT_LOG", log}}, ESPALIER_WORKER_FAULTS);
    Load(1);
    const v1::Command update = commands_.Update(1, {{"a.weight", 1000}});
    for (const auto& session : sessions_) session->Send(update);
    const auto answer = sessions_[0]->Await(update.command_id());
    ASSERT_TRUE(answer);
    EXPECT_TRUE(sessions_[1]->AwaitEnd());
    EXPECT_EQ(testing::ReadFile(log), point + "@1\n");
    // Rank 0 may have got the whole vote, and then has swapped: it alone cannot know. Without rank 1's ack the
    // coordinator voids the generation, and then nothing of it is left.
    if (!answer->status().ok()) {
      EXPECT_THAT(answer->status(), HasReason(v1::ERROR_REASON_WORKER_LOST));
      EXPECT_THAT(sessions_[0]->Run(commands_.Report())->status(), HasReason(v1::ERROR_REASON_WORKER_LOST));
    } else {
      EXPECT_TRUE(point == "after_vote" || point == "in_swap");
    }
    sessions_[0]->Void("runs/r", 1, "rank 1 is lost");
    EXPECT_THAT(sessions_[0]->Run(commands_.Report())->status(), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  }
}

TEST_F(WorkerTest, EndsOnASignal) {
  Start(1);
  workers_[0]->Signal(SIGTERM);
  const int status = workers_[0]->Wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(sessions_[0]->AwaitEnd());
}

TEST_F(WorkerTest, OutlivesBrokenPipes) {
  Start(2);
  // What a write to a peer that has gone raises, before a group was formed and in one.
  for (const auto& worker : workers_) worker->Signal(SIGPIPE);
  Load(1);
  for (const auto& worker : workers_) worker->Signal(SIGPIPE);
  for (const auto& answer : RunAll(commands_.Update(1, {{"a.weight", 1000}}))) EXPECT_OK(answer.status());
}

TEST_F(WorkerTest, EndsWhenItIsReplaced) {  // known-bugs 41
  Start(1);
  sessions_[0]->Dismiss("replaced by a newer process");
  const int status = workers_[0]->Wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace espalier
