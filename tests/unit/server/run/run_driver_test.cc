#include "server/run/run_driver.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/run/cluster.h"

namespace espalier {
namespace {

using testing::Cluster;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FailedAck;
using testing::FakeWorker;
using testing::HasReason;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Condition::Status ConditionOf(const v1::Run& run, const std::string& type) {
  for (const v1::Condition& condition : run.conditions()) {
    if (condition.type() == type) return condition.status();
  }
  return v1::Condition::STATUS_UNSPECIFIED;
}

class WorldSizeTest : public ::testing::TestWithParam<int> {};

TEST_P(WorldSizeTest, FromTheQueueToTheSavedCheckpoint) {
  const int world_size = GetParam();
  Cluster cluster;
  cluster.AddWorkers(world_size);
  v1::RunSpec spec = cluster.Spec(world_size);
  spec.set_output_path("/outputs/one");
  spec.set_output_format(v1::CHECKPOINT_FORMAT_DCP);
  const std::string name = cluster.Create(spec);
  const v1::Run run = cluster.Get(name);
  EXPECT_EQ(run.state(), v1::Run::STATE_SUCCEEDED) << run.error().message();
  EXPECT_EQ(run.mask_version(), 1);
  EXPECT_EQ(run.updates_done(), 1);
  EXPECT_EQ(run.sparsity().masked(), 128);
  EXPECT_EQ(run.workers_size(), world_size);
  for (const char* type : {"WorkersReady", "MasksConsistent", "MasksEffective", "CheckpointDurable"}) {
    EXPECT_EQ(ConditionOf(run, type), v1::Condition::STATUS_TRUE) << type;
  }
  std::vector<std::string> expected = {"InspectModel"};
  if (world_size > 1) expected.push_back("OpenRendezvous");
  for (const char* op : {"JoinGroup", "LoadModel", "CountUpdate", "UpdateMasks", "ReportSparsity", "SaveShards",
                         "PublishCheckpoint", "LeaveGroup"}) {
    expected.push_back(op);
  }
  EXPECT_EQ(cluster.worker("w0").executed(), expected);
  for (int r = 1; r < world_size; ++r) {
    EXPECT_THAT(cluster.worker("w" + std::to_string(r)).executed(),
                ElementsAre("JoinGroup", "LoadModel", "CountUpdate", "UpdateMasks", "ReportSparsity", "SaveShards",
                            "LeaveGroup"));
    EXPECT_EQ(cluster.worker("w" + std::to_string(r)).rank(), r);
  }
  const v1::PublishCheckpoint& publish = cluster.worker("w0").last("PublishCheckpoint").publish_checkpoint();
  EXPECT_EQ(cluster.worker("w0").last("SaveShards").save_shards().format(), v1::CHECKPOINT_FORMAT_DCP);
  EXPECT_EQ(publish.checksums_size(), world_size);
  EXPECT_EQ(publish.mask_digest(), static_cast<uint64_t>(world_size * (world_size + 1) / 2));
  EXPECT_EQ(publish.report_size(), 3);
  EXPECT_EQ(publish.report(0).planned(), 64);
  EXPECT_EQ(publish.report(2).planned(), -1);
  EXPECT_EQ(publish.recipe(), spec.recipe());
  EXPECT_EQ(cluster.coordinator->registry().Idle().size(), static_cast<size_t>(world_size));
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, WorldSizeTest, ::testing::Values(1, 2, 3, 8));

TEST(RunDriverTest, EventsAreWithoutGapsAndEndWithTheRun) {
  Cluster cluster;
  cluster.AddWorkers(2);
  const std::string name = cluster.Create(cluster.Spec(2));
  const std::vector<v1::RunEvent> events = cluster.Events(name);
  int64_t revision = 1;
  std::vector<std::string> types;
  for (const v1::RunEvent& event : events) {
    EXPECT_EQ(event.revision(), ++revision);
    EXPECT_EQ(event.run().revision(), event.revision());
    EXPECT_FALSE(event.run().has_plan());
    types.push_back(event.type());
  }
  EXPECT_THAT(types, ElementsAre("WorkersClaimed", "ConditionChanged", "StateChanged", "UpdateIntended",
                                 "UpdateCommitted", "ReportMade", "StateChanged"));
  EXPECT_EQ(events.back().run().state(), v1::Run::STATE_SUCCEEDED);
}

TEST(RunDriverTest, TheIntentIsJournaledBeforeItIsPushed) {
  Cluster cluster;
  cluster.AddWorkers(2);
  std::vector<records::UpdateRecord> seen;
  cluster.worker("w0").On("UpdateMasks", [&](const v1::Command&, FakeWorker::Messages&) {
    for (const JournalRecord& row : cluster.journal.Read()) {
      if (row.kind != "update") continue;
      EXPECT_TRUE(seen.emplace_back().ParseFromString(row.value));
    }
  });
  const std::string name = cluster.Create(cluster.Spec(2));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].state(), records::UpdateRecord::STATE_INTENDED);
  EXPECT_THAT(seen[0].targets(), ElementsAre(64, 64));
  const v1::UpdateSpec& pushed = cluster.worker("w1").last("UpdateMasks").update_masks().spec();
  EXPECT_THAT(pushed.targets(), ElementsAre(64, 64));
  for (const JournalRecord& row : cluster.journal.Read()) {
    if (row.kind != "update") continue;
    records::UpdateRecord committed;
    ASSERT_TRUE(committed.ParseFromString(row.value));
    EXPECT_EQ(committed.state(), records::UpdateRecord::STATE_COMMITTED);
    EXPECT_EQ(committed.mask_digest(), 3u);
    EXPECT_THAT(committed.masked(), ElementsAre(64, 64));
  }
}

TEST(RunDriverTest, ExistingZerosRaiseTheTarget) {
  Cluster cluster;
  cluster.AddWorkers(1);
  cluster.worker("w0").On("CountUpdate", [](const v1::Command&, FakeWorker::Messages& answers) {
    answers[0].mutable_page()->mutable_counts()->set_counts(1, 100);
  });
  const std::string name = cluster.Create(cluster.Spec(1));
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_SUCCEEDED);
  EXPECT_THAT(cluster.worker("w0").last("UpdateMasks").update_masks().spec().targets(), ElementsAre(64, 100));
}

TEST(RunDriverTest, QueuedRunsAreServedInOrderAndSayWhyTheyWait) {
  Cluster cluster;
  cluster.AddWorkers(3);
  const std::string big = cluster.CreateHeld(4);
  const std::string small = cluster.CreateHeld(1);
  EXPECT_EQ(cluster.Get(big).state(), v1::Run::STATE_QUEUED);
  EXPECT_EQ(cluster.Get(big).state_reason(), "need 4, have 3 idle");
  EXPECT_EQ(cluster.Get(small).state(), v1::Run::STATE_QUEUED);
  EXPECT_EQ(cluster.Get(small).state_reason(), "behind " + big);
  cluster.nodes["w3"] = std::make_unique<Cluster::Node>(FakeWorker("w3", cluster.model));
  cluster.Connect("w3");
  cluster.Pump();
  EXPECT_EQ(cluster.Get(big).state(), v1::Run::STATE_RUNNING);
  EXPECT_EQ(cluster.Get(small).state(), v1::Run::STATE_QUEUED);
  EXPECT_EQ(cluster.Get(small).state_reason(), "need 1, have 0 idle");
}

// --- something is lost at each phase

struct Loss {
  std::string operation;
  std::string how;
};

void PrintTo(const Loss& loss, std::ostream* out) {
  *out << loss.operation << " " << loss.how;
}

class LossTest : public ::testing::TestWithParam<Loss> {};

TEST_P(LossTest, TheRunFailsInTimeAndNamesTheRank) {  // known-bugs 34, 35
  const Loss& loss = GetParam();
  Cluster cluster;
  cluster.AddWorkers(3);
  const bool rank0 = loss.operation == "OpenRendezvous" || loss.operation == "PublishCheckpoint";
  const std::string victim = rank0 ? "w0" : "w1";
  bool fired = false;
  cluster.worker(victim).On(loss.operation, [&](const v1::Command&, FakeWorker::Messages& answers) {
    answers.clear();
    fired = true;
    cluster.Stop(victim);
  });
  v1::RunSpec spec = cluster.Spec(3);
  spec.set_output_path("/outputs/one");
  const std::string name = cluster.Create(spec);
  ASSERT_TRUE(fired);
  if (loss.how == "killed") cluster.Kill(victim);
  if (loss.how == "replaced") cluster.Respawn(victim);
  if (loss.how == "killed in a collective") {
    // The others' collective breaks: whoever is suspect then is lost at once.
    cluster.Kill(victim);
  }
  if (loss.how != "replaced") {
    EXPECT_NE(cluster.Get(name).state(), v1::Run::STATE_FAILED) << "a closed stream may come back";
    cluster.Advance(absl::Seconds(20));  // lease + 5 s
  }
  const v1::Run run = cluster.Get(name);
  ASSERT_EQ(run.state(), v1::Run::STATE_FAILED);
  const absl::Status error = FromProto(run.error());
  EXPECT_THAT(error, HasReason(v1::ERROR_REASON_WORKER_LOST, HasSubstr(rank0 ? "rank 0 (w0)" : "rank 1 (w1)")));
  EXPECT_EQ(MetadataOf(error, "rank"), rank0 ? "0" : "1");
  EXPECT_EQ(MetadataOf(error, "worker"), victim);
  EXPECT_EQ(ConditionOf(run, "WorkersReady"), v1::Condition::STATUS_FALSE);
  // The survivors are told, leave, and are free.
  for (const std::string survivor : {"w0", "w1", "w2"}) {
    if (survivor == victim) continue;
    ASSERT_EQ(cluster.worker(survivor).voided().size(), 1u) << survivor;
    EXPECT_EQ(cluster.worker(survivor).voided()[0].run(), name);
    EXPECT_EQ(cluster.GetWorker(survivor).state(), v1::Worker::STATE_IDLE);
  }
  const bool saving = loss.operation == "SaveShards" || loss.operation == "PublishCheckpoint";
  std::vector<std::string> all;
  for (const auto& [worker, node] : cluster.nodes) {
    all.insert(all.end(), node->worker.executed().begin(), node->worker.executed().end());
  }
  if (saving) {
    EXPECT_THAT(all, Contains("DiscardCheckpoint"));
  } else {
    EXPECT_THAT(all, Not(Contains("DiscardCheckpoint")));
    EXPECT_EQ(ConditionOf(run, "CheckpointDurable"), v1::Condition::STATUS_UNSPECIFIED);
  }
  if (loss.operation == "UpdateMasks") {
    EXPECT_EQ(run.mask_version(), 0);
  }
}

std::vector<Loss> AllLosses() {
  std::vector<Loss> all;
  for (const char* operation : {"OpenRendezvous", "JoinGroup", "LoadModel", "CountUpdate", "UpdateMasks",
                                "ReportSparsity", "SaveShards", "PublishCheckpoint"}) {
    for (const char* how : {"killed", "stopped", "replaced"}) all.push_back({operation, how});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(EachPhase, LossTest, ::testing::ValuesIn(AllLosses()));

TEST(RunDriverTest, ABrokenCollectiveAndASuspectAreALossAtOnce) {
  Cluster cluster;
  cluster.AddWorkers(2);
  cluster.worker("w1").On("UpdateMasks", [&](const v1::Command&, FakeWorker::Messages& answers) {
    answers.clear();
    cluster.Stop("w1");
  });
  cluster.worker("w0").On("UpdateMasks", [](const v1::Command& command, FakeWorker::Messages& answers) {
    answers = {FailedAck(command, v1::ERROR_REASON_WORKER_LOST, "a peer's connection broke")};
  });
  const std::string name = cluster.Create(cluster.Spec(2));
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_RUNNING) << "it waits for the one that is really lost";
  cluster.Kill("w1");
  const v1::Run run = cluster.Get(name);
  ASSERT_EQ(run.state(), v1::Run::STATE_FAILED);
  EXPECT_THAT(FromProto(run.error()), HasReason(v1::ERROR_REASON_WORKER_LOST, HasSubstr("rank 1 (w1)")));
}

TEST(RunDriverTest, AStoppedRankIsNamedThoughASurvivorComplainsFirst) {
  Cluster cluster;
  cluster.AddWorkers(2);
  cluster.worker("w1").On("UpdateMasks", [&](const v1::Command&, FakeWorker::Messages& answers) {
    answers.clear();
    cluster.Stop("w1");
  });
  cluster.worker("w0").On("UpdateMasks", [](const v1::Command& command, FakeWorker::Messages& answers) {
    answers = {FailedAck(command, v1::ERROR_REASON_COLLECTIVE_TIMEOUT, "ran out of time")};
  });
  const std::string name = cluster.Create(cluster.Spec(2));
  cluster.Advance(absl::Seconds(15));
  const v1::Run run = cluster.Get(name);
  ASSERT_EQ(run.state(), v1::Run::STATE_FAILED);
  EXPECT_THAT(FromProto(run.error()), HasReason(v1::ERROR_REASON_WORKER_LOST, HasSubstr("rank 1 (w1)")));
}

TEST(RunDriverTest, WhenNobodyIsLostTheLowestCollectiveNamesTheMissingRank) {
  Cluster cluster;
  cluster.AddWorkers(3);
  cluster.worker("w2").On("UpdateMasks", [](const v1::Command&, FakeWorker::Messages& answers) { answers.clear(); });
  for (const std::string worker : {"w0", "w1"}) {
    cluster.worker(worker).On(
        "UpdateMasks", [&cluster, worker](const v1::Command& command, FakeWorker::Messages& answers) {
          v1::WorkerMessage beat;
          beat.mutable_heartbeat()->set_collective_sequence(9);
          answers = {beat, FailedAck(command, v1::ERROR_REASON_COLLECTIVE_TIMEOUT, "ran out of time")};
        });
  }
  const std::string name = cluster.Create(cluster.Spec(3));
  cluster.Advance(absl::Seconds(16));
  const absl::Status error = FromProto(cluster.Get(name).error());
  EXPECT_THAT(error, HasReason(v1::ERROR_REASON_COLLECTIVE_TIMEOUT, HasSubstr("rank 2 (w2) was missing")));
  EXPECT_EQ(MetadataOf(error, "ranks"), "2");
}

TEST(RunDriverTest, AnAnswerThatNeverComesRunsOutOfTime) {
  Cluster cluster;
  cluster.AddWorkers(2);
  cluster.worker("w1").On("LoadModel", [](const v1::Command&, FakeWorker::Messages& answers) { answers.clear(); });
  const std::string name = cluster.Create(cluster.Spec(2));
  EXPECT_EQ(cluster.worker("w1").last("LoadModel").deadline().seconds(), 120);
  cluster.Advance(absl::Seconds(124));
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_STARTING);
  cluster.Advance(absl::Seconds(1));
  const v1::Run run = cluster.Get(name);
  ASSERT_EQ(run.state(), v1::Run::STATE_FAILED);
  EXPECT_THAT(FromProto(run.error()), HasReason(v1::ERROR_REASON_COLLECTIVE_TIMEOUT, HasSubstr("rank 1 (w1)")));
}

TEST(RunDriverTest, TheCauseIsNamedAndNotWhatFollowedFromIt) {
  Cluster cluster;
  cluster.AddWorkers(3);
  for (const std::string worker : {"w0", "w2"}) {
    cluster.worker(worker).On("UpdateMasks", [](const v1::Command& command, FakeWorker::Messages& answers) {
      answers = {FailedAck(command, v1::ERROR_REASON_INVARIANT, "rank 1 refused")};
    });
  }
  cluster.worker("w1").On("UpdateMasks", [](const v1::Command& command, FakeWorker::Messages& answers) {
    answers = {FailedAck(command, v1::ERROR_REASON_MASK_NOT_EFFECTIVE, "parameter a.weight: 3 non-zeros")};
  });
  v1::RunSpec spec = cluster.Spec(3);
  spec.set_output_path("/outputs/one");
  const std::string name = cluster.Create(spec);
  const v1::Run run = cluster.Get(name);
  ASSERT_EQ(run.state(), v1::Run::STATE_FAILED);
  EXPECT_THAT(FromProto(run.error()),
              HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE, HasSubstr("rank 1 (w1): parameter a.weight")));
  EXPECT_EQ(ConditionOf(run, "MasksEffective"), v1::Condition::STATUS_FALSE);
  EXPECT_THAT(cluster.worker("w0").executed(), Not(Contains("SaveShards")));
}

TEST(RunDriverTest, RanksThatSelectedDifferentlyStopTheRun) {
  Cluster cluster;
  cluster.AddWorkers(2);
  cluster.worker("w1").On("UpdateMasks", [](const v1::Command&, FakeWorker::Messages& answers) {
    answers.back().mutable_ack()->mutable_update_masks()->set_selection_hash(5);
  });
  const v1::Run run = cluster.Get(cluster.Create(cluster.Spec(2)));
  ASSERT_EQ(run.state(), v1::Run::STATE_FAILED);
  EXPECT_THAT(FromProto(run.error()), HasReason(v1::ERROR_REASON_STATE_DIVERGED, HasSubstr("rank 1")));
  EXPECT_EQ(ConditionOf(run, "MasksConsistent"), v1::Condition::STATUS_FALSE);
  EXPECT_EQ(run.mask_version(), 0);
}

TEST(RunDriverTest, AReportThatDisagreesWithThePlanStopsTheRunBeforeItSaves) {
  Cluster cluster;
  cluster.AddWorkers(2);
  cluster.worker("w0").On("ReportSparsity", [](const v1::Command&, FakeWorker::Messages& answers) {
    answers[0].mutable_page()->mutable_report()->mutable_parameters(1)->set_zeros(0);
  });
  v1::RunSpec spec = cluster.Spec(2);
  spec.set_output_path("/outputs/one");
  const v1::Run run = cluster.Get(cluster.Create(spec));
  ASSERT_EQ(run.state(), v1::Run::STATE_FAILED);
  EXPECT_THAT(FromProto(run.error()), HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE, HasSubstr("b.weight")));
  EXPECT_THAT(cluster.worker("w0").executed(), Not(Contains("SaveShards")));
}

TEST(RunDriverTest, AFailedLoadNamesRankAndReason) {
  Cluster cluster;
  cluster.AddWorkers(2);
  cluster.worker("w1").On("LoadModel", [](const v1::Command& command, FakeWorker::Messages& answers) {
    answers = {FailedAck(command, v1::ERROR_REASON_CHECKPOINT_INVALID, "model.safetensors: cut off")};
  });
  const v1::Run run = cluster.Get(cluster.Create(cluster.Spec(2)));
  ASSERT_EQ(run.state(), v1::Run::STATE_FAILED);
  EXPECT_THAT(FromProto(run.error()),
              HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, HasSubstr("rank 1 (w1): model.safetensors")));
}

TEST(RunDriverTest, RanksThatAgreeOnAFailureNameWhoseItIs) {
  Cluster cluster;
  cluster.AddWorkers(3);
  for (const char* worker : {"w0", "w1", "w2"}) {
    cluster.worker(worker).On("SaveShards", [](const v1::Command& command, FakeWorker::Messages& answers) {
      answers = {FailedAck(command, v1::ERROR_REASON_STORAGE_UNWRITABLE, "/outputs/one: no space left")};
      v1::Status& status = *answers[0].mutable_ack()->mutable_status();
      status = ToProto(Annotate(FromProto(status), "", {{"rank", "1"}}));
    });
  }
  v1::RunSpec spec = cluster.Spec(3);
  spec.set_output_path("/outputs/one");
  const v1::Run run = cluster.Get(cluster.Create(spec));
  const absl::Status error = FromProto(run.error());
  EXPECT_THAT(error, HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, "rank 1 (w1): /outputs/one: no space left"));
  EXPECT_EQ(MetadataOf(error, "worker"), "w1");
}

TEST(RunDriverTest, ALateAckOfAFailedRunChangesNothing) {
  Cluster cluster;
  cluster.AddWorkers(2);
  cluster.nodes["w1"]->mute = true;
  cluster.worker("w0").On("LoadModel", [](const v1::Command& command, FakeWorker::Messages& answers) {
    answers = {FailedAck(command, v1::ERROR_REASON_CHECKPOINT_INVALID, "bad")};
  });
  // Joining needs w1.
  cluster.worker("w1").On("LoadModel", [](const v1::Command&, FakeWorker::Messages&) {});
  const std::string name = cluster.Create(cluster.Spec(2));
  cluster.Unmute("w1");
  cluster.nodes["w1"]->mute = true;
  cluster.Advance(absl::Seconds(2));
  const v1::Run failed = cluster.Get(name);
  ASSERT_EQ(failed.state(), v1::Run::STATE_FAILED);
  const int64_t refused = cluster.GetWorker("w1").refused_messages();
  cluster.Unmute("w1");
  EXPECT_EQ(cluster.Get(name).revision(), failed.revision());
  EXPECT_GE(cluster.GetWorker("w1").refused_messages(), refused);
  EXPECT_EQ(cluster.GetWorker("w1").state(), v1::Worker::STATE_IDLE);
}

TEST(RunDriverTest, ABlipDuringAnUpdateCostsNothing) {  // known-bugs 65, 66
  Cluster cluster;
  cluster.AddWorkers(2);
  bool lost = false;
  cluster.worker("w1").On("UpdateMasks", [&](const v1::Command&, FakeWorker::Messages& answers) {
    if (!std::exchange(lost, true)) answers.clear();  // executed, and the answer lost with the stream
  });
  const std::string name = cluster.Create(cluster.Spec(2));
  cluster.coordinator->registry().Closed(cluster.nodes["w1"]->session);
  cluster.Advance(absl::Seconds(5));
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_RUNNING);
  cluster.Connect("w1");
  cluster.Pump();
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_SUCCEEDED);
  const auto& executed = cluster.worker("w1").executed();
  EXPECT_EQ(std::count(executed.begin(), executed.end(), "UpdateMasks"), 1);
}

// --- holding, finishing, cancelling

TEST(RunDriverTest, AHeldRunWaitsForFinish) {
  Cluster cluster;
  cluster.AddWorkers(1);
  v1::RunSpec spec = cluster.Spec(1);
  spec.set_hold(true);
  spec.set_output_path("/outputs/one");
  const std::string name = cluster.Create(spec);
  cluster.Advance(absl::Minutes(1));
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_RUNNING);
  EXPECT_THAT(cluster.Get(name).state_reason(), HasSubstr("espalier finish"));
  v1::FinishRunRequest request;
  request.set_name(name);
  const auto finished = cluster.Call(&Coordinator::FinishRun, request);
  ASSERT_TRUE(finished.ok()) << finished.status();
  EXPECT_EQ(finished->state(), v1::Run::STATE_RUNNING);
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_SUCCEEDED);
  EXPECT_THAT(cluster.worker("w0").executed(), Contains("PublishCheckpoint"));
  EXPECT_THAT(cluster.Call(&Coordinator::FinishRun, request), HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
}

TEST(RunDriverTest, AHeldRunThatCannotBeSavedIsHeldAgain) {
  for (const std::string operation : {"SaveShards", "PublishCheckpoint"}) {
    Cluster cluster;
    cluster.AddWorkers(1);
    v1::RunSpec spec = cluster.Spec(1);
    spec.set_hold(true);
    spec.set_output_path("/outputs/one");
    const std::string name = cluster.Create(spec);
    cluster.worker("w0").On(operation, [](const v1::Command& command, FakeWorker::Messages& answers) {
      answers = {FailedAck(command, v1::ERROR_REASON_OUTPUT_EXISTS, "/outputs/one exists")};
    });
    v1::FinishRunRequest request;
    request.set_name(name);
    ASSERT_TRUE(cluster.Call(&Coordinator::FinishRun, request).ok());
    const v1::Run held = cluster.Get(name);
    EXPECT_EQ(held.state(), v1::Run::STATE_RUNNING);
    EXPECT_TRUE(held.hold());
    EXPECT_THAT(held.state_reason(), HasSubstr("held again"));
    EXPECT_THAT(FromProto(held.error()), HasReason(v1::ERROR_REASON_OUTPUT_EXISTS));
    cluster.worker("w0").Clear();
    ASSERT_TRUE(cluster.Call(&Coordinator::FinishRun, request).ok());
    EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_SUCCEEDED);
    EXPECT_FALSE(cluster.Get(name).has_error());
  }
}

TEST(RunDriverTest, AHoldThatRunsOutAndCannotBeSavedFails) {
  Cluster cluster;
  cluster.AddWorkers(1);
  v1::RunSpec spec = cluster.Spec(1);
  spec.set_hold(true);
  spec.mutable_hold_timeout()->set_seconds(60);
  spec.set_output_path("/outputs/one");
  const std::string name = cluster.Create(spec);
  cluster.worker("w0").On("SaveShards", [](const v1::Command& command, FakeWorker::Messages& answers) {
    answers = {FailedAck(command, v1::ERROR_REASON_OUTPUT_EXISTS, "/outputs/one exists")};
  });
  cluster.Advance(absl::Seconds(70));
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_FAILED);
  EXPECT_THAT(FromProto(cluster.Get(name).error()), HasReason(v1::ERROR_REASON_OUTPUT_EXISTS));
}

TEST(RunDriverTest, AHoldEndsByItself) {
  Cluster cluster;
  cluster.AddWorkers(1);
  v1::RunSpec spec = cluster.Spec(1);
  spec.set_hold(true);
  spec.mutable_hold_timeout()->set_seconds(60);
  const std::string name = cluster.Create(spec);
  cluster.Advance(absl::Seconds(59));
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_RUNNING);
  cluster.Advance(absl::Seconds(1));
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_SUCCEEDED);
}

TEST(RunDriverTest, FinishBeforeTheLastStageLiftsTheHold) {
  Cluster cluster;
  cluster.AddWorkers(1);
  cluster.worker("w0").On("CountUpdate",
                          [&](const v1::Command&, FakeWorker::Messages&) { cluster.nodes["w0"]->mute = true; });
  const std::string name = cluster.CreateHeld(1);
  v1::FinishRunRequest request;
  request.set_name(name);
  ASSERT_TRUE(cluster.Call(&Coordinator::FinishRun, request).ok());
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_RUNNING);
  EXPECT_FALSE(cluster.Get(name).hold());
  cluster.Unmute("w0");
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_SUCCEEDED);
}

TEST(RunDriverTest, ARunWithoutHoldCannotBeFinished) {
  Cluster cluster;
  cluster.AddWorkers(1);
  cluster.nodes["w0"]->worker.On("LoadModel",
                                 [&](const v1::Command&, FakeWorker::Messages&) { cluster.nodes["w0"]->mute = true; });
  const std::string name = cluster.Create(cluster.Spec(1));
  v1::FinishRunRequest request;
  request.set_name(name);
  EXPECT_THAT(cluster.Call(&Coordinator::FinishRun, request), HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
}

class CancelTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CancelTest, EndsTheRunAndSavesNothing) {
  Cluster cluster;
  cluster.AddWorkers(2);
  const std::string operation = GetParam();
  cluster.worker("w1").On(operation,
                          [&](const v1::Command&, FakeWorker::Messages&) { cluster.nodes["w1"]->mute = true; });
  v1::RunSpec spec = cluster.Spec(2);
  spec.set_output_path("/outputs/one");
  const std::string name = cluster.Create(spec);
  v1::CancelRunRequest request;
  request.set_name(name);
  request.set_reason("changed my mind");
  const auto cancelled = cluster.Call(&Coordinator::CancelRun, request);
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_CANCELLING) << "w1 has not let go";
  ASSERT_TRUE(cluster.Call(&Coordinator::CancelRun, request).ok()) << "a no-op by now";
  cluster.Unmute("w1");
  const v1::Run run = cluster.Get(name);
  EXPECT_EQ(run.state(), v1::Run::STATE_CANCELLED);
  EXPECT_THAT(FromProto(run.error()), HasReason(v1::ERROR_REASON_CANCELLED, HasSubstr("changed my mind")));
  EXPECT_THAT(cluster.worker("w0").executed(), Not(Contains("PublishCheckpoint")));
  EXPECT_EQ(cluster.coordinator->registry().Idle().size(), 2u);
  EXPECT_EQ(cluster.worker("w0").voided().size(), 1u);
  if (operation == "SaveShards") {
    EXPECT_THAT(cluster.worker("w0").executed(), Contains("DiscardCheckpoint"));
  }
}

INSTANTIATE_TEST_SUITE_P(Phases, CancelTest,
                         ::testing::Values("JoinGroup", "LoadModel", "UpdateMasks", "ReportSparsity", "SaveShards"));

TEST(RunDriverTest, ACancelledRunDoesNotWaitForeverForItsWorkers) {
  Cluster cluster;
  cluster.AddWorkers(1);
  cluster.worker("w0").On("LeaveGroup", [](const v1::Command&, FakeWorker::Messages& answers) { answers.clear(); });
  const std::string name = cluster.CreateHeld(1);
  v1::CancelRunRequest request;
  request.set_name(name);
  ASSERT_TRUE(cluster.Call(&Coordinator::CancelRun, request).ok());
  cluster.Advance(absl::Seconds(20));
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_CANCELLED);
  EXPECT_EQ(cluster.GetWorker("w0").state(), v1::Worker::STATE_BUSY) << "it has not let go";
}

TEST(RunDriverTest, PublishingCannotBeCancelled) {
  Cluster cluster;
  cluster.AddWorkers(1);
  cluster.worker("w0").On("PublishCheckpoint",
                          [&](const v1::Command&, FakeWorker::Messages&) { cluster.nodes["w0"]->mute = true; });
  v1::RunSpec spec = cluster.Spec(1);
  spec.set_output_path("/outputs/one");
  const std::string name = cluster.Create(spec);
  v1::CancelRunRequest request;
  request.set_name(name);
  EXPECT_THAT(cluster.Call(&Coordinator::CancelRun, request), HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
  cluster.Unmute("w0");
  EXPECT_EQ(cluster.Get(name).state(), v1::Run::STATE_SUCCEEDED);
  EXPECT_THAT(cluster.Call(&Coordinator::CancelRun, request), HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
}

TEST(RunDriverTest, AQueuedRunIsCancelledAtOnce) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string waiting = cluster.CreateHeld(2);
  const std::string behind = cluster.CreateHeld(1);
  v1::CancelRunRequest request;
  request.set_name(waiting);
  const auto cancelled = cluster.Call(&Coordinator::CancelRun, request);
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(cancelled->state(), v1::Run::STATE_CANCELLED);
  EXPECT_EQ(cluster.Get(behind).state(), v1::Run::STATE_RUNNING) << "nothing is in its way any more";
}

TEST(RunDriverTest, AJournalThatCannotBeWrittenFailsTheRun) {  // known-bugs 67
  Cluster cluster;
  cluster.AddWorkers(2);
  cluster.worker("w0").On("CountUpdate",
                          [&](const v1::Command&, FakeWorker::Messages&) { cluster.journal.failing = true; });
  const std::string name = cluster.Create(cluster.Spec(2));
  EXPECT_THAT(FromProto(cluster.Get(name).error()), HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE));
  EXPECT_THAT(cluster.worker("w0").executed(), Not(Contains("UpdateMasks"))) << "an intent comes before its push";
  cluster.journal.failing = false;
  EXPECT_EQ(cluster.coordinator->registry().Idle().size(), 2u);
}

}  // namespace
}  // namespace espalier
