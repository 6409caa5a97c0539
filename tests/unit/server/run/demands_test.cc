// Reports, parameters, masks and saves of a RUNNING run.

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
using testing::IsOk;
using ::testing::Not;
using testing::RecordingChunks;
using testing::RecordingSink;

using ReportSink = RecordingSink<v1::ComputeSparsityReportResponse>;

class DemandsTest : public ::testing::Test {
 protected:
  void Hold(int world_size = 2) {
    cluster_.AddWorkers(world_size);
    name_ = cluster_.CreateHeld(world_size);
    ASSERT_EQ(cluster_.Get(name_).state(), v1::Run::STATE_RUNNING);
  }

  std::shared_ptr<ReportSink> Report(v1::ReportMode mode = v1::REPORT_MODE_UNSPECIFIED) {
    auto sink = std::make_shared<ReportSink>();
    v1::ComputeSparsityReportRequest request;
    request.set_name(name_);
    request.set_mode(mode);
    cluster_.coordinator->ComputeSparsityReport(request, sink);
    cluster_.Pump();
    return sink;
  }

  std::shared_ptr<RecordingChunks> Read(const std::string& parameter, int64_t begin = 0, int64_t end = 0) {
    auto sink = std::make_shared<RecordingChunks>();
    Read(parameter, begin, end, sink);
    return sink;
  }
  void Read(const std::string& parameter, int64_t begin, int64_t end, std::shared_ptr<RecordingChunks> sink) {
    v1::ReadParameterRequest request;
    request.set_name(name_);
    request.set_parameter(parameter);
    request.set_begin(begin);
    request.set_end(end);
    cluster_.coordinator->ReadParameter(request, sink);
    cluster_.Pump();
  }

  absl::StatusOr<v1::Operation> Save(const std::string& path, int format = 0) {
    v1::SaveCheckpointRequest request;
    request.set_name(name_);
    request.set_path(path);
    request.set_format(static_cast<v1::CheckpointFormat>(format));
    return cluster_.Call(&Coordinator::SaveCheckpoint, request);
  }

  v1::Operation GetOperation(const std::string& operation) {
    const v1::Run run = cluster_.Get(name_);
    for (const v1::Operation& each : run.operations()) {
      if (each.name() == operation) return each;
    }
    return {};
  }

  // What rank 0 would upload for its last GatherParameter.
  v1::UploadParameterRequest First() {
    FakeWorker& worker = cluster_.worker("w0");
    v1::UploadParameterRequest first;
    first.set_command_id(worker.last("GatherParameter").command_id());
    first.set_worker("w0");
    first.set_incarnation(worker.incarnation());
    first.mutable_header()->set_generation(1);
    first.mutable_header()->set_mask_version(1);
    first.mutable_header()->set_total_chunks(2);
    first.mutable_header()->set_total_bytes(8);
    return first;
  }
  static v1::DataChunk Chunk(int64_t index, const std::string& data) {
    v1::DataChunk chunk;
    chunk.set_index(index);
    chunk.set_data(data);
    chunk.set_crc32(Crc32(0, data.data(), data.size()));
    return chunk;
  }

  Cluster cluster_;
  std::string name_;
};

TEST_F(DemandsTest, AReportComesInPagesAndThenTheSummary) {
  Hold();
  const auto sink = Report(v1::REPORT_MODE_GATHER);
  ASSERT_TRUE(sink->status.has_value());
  ASSERT_THAT(*sink->status, IsOk());
  ASSERT_EQ(sink->messages.size(), 2u);
  ASSERT_EQ(sink->messages[0].page().parameters_size(), 3);
  EXPECT_EQ(sink->messages[0].page().parameters(0).planned(), 64);
  const auto& summary = sink->messages[1].summary();
  EXPECT_EQ(summary.sparsity().masked(), 128);
  EXPECT_EQ(summary.sparsity().mask_version(), 1);
  EXPECT_EQ(summary.provenance().mode(), v1::REPORT_MODE_GATHER);
  EXPECT_EQ(summary.provenance().bytes_moved(), 2 * 16 * 3);
  EXPECT_EQ(summary.provenance().world_size(), 2);
}

TEST(ReportPagesTest, ALargeModelNeedsManyPages) {  // known-bugs 58
  std::vector<std::string> names;
  for (int i = 0; i < 2500; ++i) names.push_back("layer." + std::to_string(10000 + i) + ".weight");
  Cluster cluster(names);
  cluster.AddWorkers(2);
  v1::RunSpec spec = cluster.Spec(2);
  spec.set_recipe("s_stage:\n  p_modifiers:\n    - ConstantPruningModifier: {targets: [\"re:layer.*\"]}\n");
  const std::string name = cluster.Create(spec);
  ASSERT_EQ(cluster.Get(name).state(), v1::Run::STATE_SUCCEEDED) << cluster.Get(name).error().message();
  auto sink = std::make_shared<ReportSink>();
  v1::ComputeSparsityReportRequest request;
  request.set_name(name);
  cluster.coordinator->ComputeSparsityReport(request, sink);
  ASSERT_EQ(sink->messages.size(), 4u);
  EXPECT_EQ(sink->messages[0].page().parameters_size(), 1000);
  EXPECT_EQ(sink->messages[2].page().parameters_size(), 500);
}

TEST_F(DemandsTest, TheLastReportOfAnEndedRunStaysReadable) {
  cluster_.AddWorkers(1);
  name_ = cluster_.Create(cluster_.Spec(1));
  EXPECT_EQ(Report()->messages.size(), 2u);
  EXPECT_THAT(*Report(v1::REPORT_MODE_GATHER)->status, HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
  EXPECT_THAT(*Read("a.weight")->status, HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
  cluster_.Restart();
  const auto sink = Report();
  ASSERT_EQ(sink->messages.size(), 2u);
  EXPECT_EQ(sink->messages[1].summary().sparsity().masked(), 128);
}

TEST_F(DemandsTest, WhatIsAskedDuringAnUpdateWaitsForIt) {
  cluster_.AddWorkers(2);
  cluster_.worker("w1").On("UpdateMasks",
                           [&](const v1::Command&, FakeWorker::Messages&) { cluster_.nodes["w1"]->mute = true; });
  name_ = cluster_.CreateHeld(2);
  const auto sink = Report();
  EXPECT_FALSE(sink->status.has_value());
  EXPECT_THAT(cluster_.worker("w0").executed(), Not(Contains("ReportSparsity")));
  cluster_.Unmute("w1");
  ASSERT_TRUE(sink->status.has_value());
  EXPECT_EQ(sink->messages.back().summary().sparsity().mask_version(), 1);
}

TEST_F(DemandsTest, NothingOfAFailedUpdateIsServed) {
  cluster_.AddWorkers(2);
  cluster_.worker("w1").On("UpdateMasks", [&](const v1::Command&, FakeWorker::Messages& answers) {
    answers.clear();
    cluster_.Stop("w1");
  });
  name_ = cluster_.CreateHeld(2);
  const auto report = Report();
  const auto read = Read("a.weight");
  cluster_.Kill("w1");
  cluster_.Advance(absl::Seconds(15));
  ASSERT_TRUE(report->status.has_value());
  EXPECT_EQ(report->status->code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(report->messages.empty());
  ASSERT_TRUE(read->status.has_value());
  EXPECT_EQ(read->status->code(), absl::StatusCode::kAborted);
  EXPECT_EQ(cluster_.Get(name_).mask_version(), 0);
}

TEST_F(DemandsTest, AllRanksSeeOneOrder) {  // known-bugs 24
  Hold(3);
  std::vector<std::shared_ptr<ReportSink>> reports;
  for (int i = 0; i < 50; ++i) {
    auto sink = std::make_shared<ReportSink>();
    v1::ComputeSparsityReportRequest request;
    request.set_name(name_);
    cluster_.coordinator->ComputeSparsityReport(request, sink);
    reports.push_back(sink);
    if (i % 5 != 0) continue;
    v1::SaveCheckpointRequest save;
    save.set_name(name_);
    save.set_path("/outputs/" + std::to_string(i));
    cluster_.coordinator->SaveCheckpoint(
        save, [](const absl::StatusOr<v1::Operation>& operation) { EXPECT_THAT(operation, IsOk()); });
  }
  cluster_.Pump();
  for (const auto& sink : reports) EXPECT_THAT(*sink->status, IsOk());
  const auto shared = [&](const std::string& worker) {
    std::vector<std::string> ops;
    for (const std::string& op : cluster_.worker(worker).executed()) {
      if (op == "ReportSparsity" || op == "SaveShards") ops.push_back(op);
    }
    return ops;
  };
  EXPECT_EQ(shared("w0").size(), 61u);
  EXPECT_EQ(shared("w1"), shared("w0"));
  EXPECT_EQ(shared("w2"), shared("w0"));
  EXPECT_EQ(cluster_.Get(name_).operations_size(), 10);
}

TEST_F(DemandsTest, AParameterPassesFromTheWorkerToTheClient) {
  Hold();
  const auto sink = Read("a.weight", 4, 6);
  const v1::GatherParameter& op = cluster_.worker("w1").last("GatherParameter").gather_parameter();
  EXPECT_EQ(op.begin(), 4);
  EXPECT_EQ(op.end(), 6);
  const auto relay = cluster_.coordinator->FindUpload(First());
  ASSERT_THAT(relay, IsOk());
  EXPECT_THAT((*relay)->Begin(First().header()), IsOk());
  EXPECT_THAT((*relay)->Accept(Chunk(0, "abcd")), IsOk());
  EXPECT_THAT((*relay)->Accept(Chunk(1, "efgh")), IsOk());
  EXPECT_FALSE(sink->status.has_value());
  EXPECT_THAT((*relay)->Complete(), IsOk());
  cluster_.Pump();
  ASSERT_TRUE(sink->status.has_value());
  EXPECT_THAT(*sink->status, IsOk());
  EXPECT_EQ(sink->chunks.size(), 2u);
  EXPECT_THAT(cluster_.coordinator->FindUpload(First()), HasReason(v1::ERROR_REASON_OPERATION_NOT_FOUND));
  EXPECT_THAT(*Report()->status, IsOk());
}

TEST_F(DemandsTest, UploadsOfOthersAreRefused) {
  Hold();
  Read("a.weight");
  v1::UploadParameterRequest first = First();
  first.set_incarnation(NewUuid());
  EXPECT_THAT(cluster_.coordinator->FindUpload(first), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  first = First();
  first.set_command_id(999);
  EXPECT_THAT(cluster_.coordinator->FindUpload(first), HasReason(v1::ERROR_REASON_OPERATION_NOT_FOUND));
}

TEST_F(DemandsTest, AnUploadOfAnotherMaskVersionIsNotServed) {
  Hold();
  const auto sink = Read("a.weight");
  const auto relay = cluster_.coordinator->FindUpload(First());
  v1::ParameterHeader header = First().header();
  header.set_mask_version(2);
  EXPECT_THAT((*relay)->Begin(header), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  cluster_.Pump();
  EXPECT_EQ(sink->status->code(), absl::StatusCode::kAborted);
  EXPECT_THAT(*Report()->status, IsOk());
}

TEST_F(DemandsTest, DamagedUploadsAreNoticed) {
  Hold();
  v1::DataChunk flipped = Chunk(0, "abcd");
  flipped.set_data("abce");
  for (const v1::DataChunk& bad : {Chunk(1, "abcd"), flipped}) {
    const auto sink = Read("a.weight");
    const auto relay = cluster_.coordinator->FindUpload(First());
    ASSERT_THAT((*relay)->Begin(First().header()), IsOk());
    EXPECT_THAT((*relay)->Accept(bad), HasReason(v1::ERROR_REASON_INVARIANT));
    cluster_.Pump();
    EXPECT_THAT(*sink->status, HasReason(v1::ERROR_REASON_INVARIANT));
  }
  const auto sink = Read("a.weight");
  const auto relay = cluster_.coordinator->FindUpload(First());
  ASSERT_THAT((*relay)->Begin(First().header()), IsOk());
  EXPECT_THAT((*relay)->Complete(), HasReason(v1::ERROR_REASON_INVARIANT)) << "half of it is missing";
  cluster_.Pump();
  EXPECT_THAT(*sink->status, HasReason(v1::ERROR_REASON_INVARIANT));
}

TEST_F(DemandsTest, TheUploadGoesAtTheClientsSpeed) {
  Hold();
  auto sink = std::make_shared<RecordingChunks>();
  sink->room = 1;
  Read("a.weight", 0, 0, sink);
  const auto relay = cluster_.coordinator->FindUpload(First());
  ASSERT_THAT((*relay)->Begin(First().header()), IsOk());
  int rooms = 0;
  (*relay)->WhenRoom([&] { ++rooms; });
  EXPECT_EQ(rooms, 1);
  ASSERT_THAT((*relay)->Accept(Chunk(0, "abcd")), IsOk());
  (*relay)->WhenRoom([&] { ++rooms; });
  EXPECT_EQ(rooms, 1) << "the client has taken nothing yet";
  sink->room = 2;
  sink->on_change();
  EXPECT_EQ(rooms, 2);
}

TEST_F(DemandsTest, AClientThatStopsReadingDoesNotHoldUpTheRun) {  // known-bugs 59
  Hold();
  auto sink = std::make_shared<RecordingChunks>();
  sink->room = 0;
  cluster_.worker("w0").On("GatherParameter", [](const v1::Command&, FakeWorker::Messages& answers) {
    answers.clear();  // it waits for its upload
  });
  Read("a.weight", 0, 0, sink);
  const auto relay = cluster_.coordinator->FindUpload(First());
  ASSERT_THAT((*relay)->Begin(First().header()), IsOk());
  int woken = 0;
  (*relay)->WhenRoom([&] { ++woken; });
  cluster_.Advance(absl::Seconds(61));
  ASSERT_TRUE(sink->status.has_value());
  EXPECT_THAT(*sink->status, HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED));
  EXPECT_EQ(woken, 1);
  EXPECT_THAT((*relay)->Accept(Chunk(0, "abcd")), HasReason(v1::ERROR_REASON_OPERATION_NOT_FOUND));
  // The worker hears that nobody waits, and says so.
  cluster_.coordinator->registry().Receive(
      cluster_.nodes["w0"]->session,
      FailedAck(cluster_.worker("w0").last("GatherParameter"), v1::ERROR_REASON_OPERATION_NOT_FOUND, "gone"));
  cluster_.Pump();
  EXPECT_EQ(cluster_.Get(name_).state(), v1::Run::STATE_RUNNING);
  EXPECT_THAT(*Report()->status, IsOk());
}

TEST_F(DemandsTest, AnUploadThatNeverComesIsGivenUp) {  // known-bugs 26
  Hold();
  const auto sink = Read("a.weight");  // all ranks answer, and rank 0 uploads nothing
  const auto report = Report();
  EXPECT_FALSE(report->status.has_value());
  cluster_.Advance(absl::Seconds(61));
  ASSERT_TRUE(sink->status.has_value());
  EXPECT_THAT(*sink->status, HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED));
  ASSERT_TRUE(report->status.has_value());
  EXPECT_THAT(*report->status, IsOk());
}

TEST_F(DemandsTest, AClientThatWentAwayBeforeItsTurnCostsNothing) {
  Hold();
  cluster_.nodes["w0"]->mute = true;
  const auto first = Report();
  const auto second = Report();
  second->Abandon();
  cluster_.Unmute("w0");
  EXPECT_THAT(*first->status, IsOk());
  const auto& executed = cluster_.worker("w0").executed();
  EXPECT_EQ(std::count(executed.begin(), executed.end(), "ReportSparsity"), 2) << "the final one and the first";
}

TEST_F(DemandsTest, BadRangesAndNames) {
  Hold();
  EXPECT_THAT(*Read("nobody")->status, HasReason(v1::ERROR_REASON_PARAMETER_NOT_FOUND));
  EXPECT_THAT(*Read("a.weight", 0, 129)->status, HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  EXPECT_THAT(*Read("a.weight", -1, 5)->status, HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  EXPECT_THAT(*Read("a.weight", 6, 5)->status, HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  name_ = "runs/none";
  EXPECT_THAT(*Read("a.weight")->status, HasReason(v1::ERROR_REASON_RUN_NOT_FOUND));
  EXPECT_THAT(*Report()->status, HasReason(v1::ERROR_REASON_RUN_NOT_FOUND));
}

// --- saves

TEST_F(DemandsTest, ASaveHasTheFormatItAskedFor) {
  Hold();
  ASSERT_THAT(Save("/outputs/side", v1::CHECKPOINT_FORMAT_DCP), IsOk());
  cluster_.Pump();
  EXPECT_EQ(cluster_.worker("w1").last("SaveShards").save_shards().format(), v1::CHECKPOINT_FORMAT_DCP);
  EXPECT_THAT(Save("/outputs/other", 99), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

TEST_F(DemandsTest, ASaveIsAnOperationOfARunningRun) {
  Hold();
  const auto operation = Save("/outputs/side");
  ASSERT_THAT(operation, IsOk());
  EXPECT_EQ(operation->state(), v1::Operation::STATE_RUNNING);
  const v1::Operation ended = GetOperation(operation->name());
  EXPECT_EQ(ended.state(), v1::Operation::STATE_SUCCEEDED);
  EXPECT_EQ(ended.bytes_done(), 3 * 8 * 16 * 4);
  EXPECT_EQ(cluster_.Get(name_).state(), v1::Run::STATE_RUNNING);
  EXPECT_THAT(*Report()->status, IsOk());
}

TEST_F(DemandsTest, TheQueueOfSavesIsBoundedAndOldOnesAreForgotten) {
  Hold();
  for (int i = 0; i < 25; ++i) ASSERT_THAT(Save("/outputs/" + std::to_string(i)), IsOk());
  EXPECT_EQ(cluster_.Get(name_).operations_size(), 20);
  EXPECT_EQ(cluster_.Get(name_).operations(0).path(), "/outputs/5");
  cluster_.nodes["w0"]->mute = true;
  for (int i = 0; i < 20; ++i) ASSERT_THAT(Save("/outputs/more"), IsOk());
  EXPECT_THAT(Save("/outputs/too-many"), HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED));
}

TEST_F(DemandsTest, ASaveThatCannotBeWrittenLeavesTheRunAlone) {  // known-bugs 67
  Hold();
  for (const std::string worker : {"w0", "w1"}) {
    cluster_.worker(worker).On("SaveShards", [](const v1::Command& command, FakeWorker::Messages& answers) {
      answers = {FailedAck(command, v1::ERROR_REASON_STORAGE_UNWRITABLE, "/outputs/side: no space left")};
    });
  }
  const auto operation = Save("/outputs/side");
  ASSERT_THAT(operation, IsOk());
  const v1::Operation failed = GetOperation(operation->name());
  EXPECT_EQ(failed.state(), v1::Operation::STATE_FAILED);
  EXPECT_THAT(FromProto(failed.error()), HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, HasSubstr("/outputs/side")));
  cluster_.worker("w0").Clear();
  cluster_.worker("w1").Clear();
  const auto next = Save("/outputs/other");
  EXPECT_EQ(GetOperation(next->name()).state(), v1::Operation::STATE_SUCCEEDED);
}

TEST_F(DemandsTest, ARecountThatFindsAStaleTensorStopsTheRun) {
  Hold();
  cluster_.worker("w1").On("SaveShards", [](const v1::Command& command, FakeWorker::Messages& answers) {
    answers = {FailedAck(command, v1::ERROR_REASON_MASK_NOT_EFFECTIVE, "a.weight")};
  });
  const auto operation = Save("/outputs/side");
  EXPECT_THAT(FromProto(cluster_.Get(name_).error()), HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE));
  EXPECT_EQ(GetOperation(operation->name()).state(), v1::Operation::STATE_FAILED);
  EXPECT_THAT(cluster_.worker("w0").executed(), Not(Contains("PublishCheckpoint")));
}

TEST_F(DemandsTest, AWaitingSaveCanBeCancelled) {
  Hold();
  cluster_.nodes["w0"]->mute = true;
  const auto report = Report();
  const auto operation = Save("/outputs/side");
  v1::CancelOperationRequest request;
  request.set_name(operation->name());
  const auto cancelled = cluster_.Call(&Coordinator::CancelOperation, request);
  ASSERT_THAT(cancelled, IsOk());
  EXPECT_EQ(cancelled->state(), v1::Operation::STATE_CANCELLED);
  cluster_.Unmute("w0");
  EXPECT_THAT(cluster_.worker("w0").executed(), Not(Contains("SaveShards")));
  EXPECT_EQ(cluster_.Call(&Coordinator::CancelOperation, request)->state(), v1::Operation::STATE_CANCELLED);
}

TEST_F(DemandsTest, ASaveInFlightIsCancelledAndItsDirectoryRemoved) {
  Hold();
  cluster_.worker("w1").On("SaveShards",
                           [&](const v1::Command&, FakeWorker::Messages&) { cluster_.nodes["w1"]->mute = true; });
  const auto operation = Save("/outputs/side");
  v1::CancelOperationRequest request;
  request.set_name(operation->name());
  EXPECT_EQ(cluster_.Call(&Coordinator::CancelOperation, request)->state(), v1::Operation::STATE_CANCELLED);
  cluster_.Unmute("w1");
  EXPECT_THAT(cluster_.worker("w0").executed(), Contains("DiscardCheckpoint"));
  EXPECT_THAT(cluster_.worker("w0").executed(), Not(Contains("PublishCheckpoint")));
  EXPECT_EQ(GetOperation(operation->name()).state(), v1::Operation::STATE_CANCELLED);
  EXPECT_THAT(*Report()->status, IsOk());
}

TEST_F(DemandsTest, SavesOfALostRunFail) {
  Hold();
  cluster_.worker("w1").On("SaveShards", [&](const v1::Command&, FakeWorker::Messages& answers) {
    answers.clear();
    cluster_.Stop("w1");
  });
  const auto first = Save("/outputs/first");
  const auto second = Save("/outputs/second");
  cluster_.Kill("w1");
  cluster_.Advance(absl::Seconds(15));
  EXPECT_EQ(GetOperation(first->name()).state(), v1::Operation::STATE_FAILED);
  EXPECT_EQ(GetOperation(second->name()).state(), v1::Operation::STATE_FAILED);
  EXPECT_THAT(cluster_.worker("w0").executed(), Contains("DiscardCheckpoint"));
  EXPECT_EQ(cluster_.Events(name_).back().run().state(), v1::Run::STATE_FAILED) << "nothing comes after the end";
}

TEST_F(DemandsTest, UnknownOperations) {
  Hold();
  v1::CancelOperationRequest request;
  request.set_name(name_ + "/operations/none");
  EXPECT_THAT(cluster_.Call(&Coordinator::CancelOperation, request), HasReason(v1::ERROR_REASON_OPERATION_NOT_FOUND));
  request.set_name("nonsense");
  EXPECT_THAT(cluster_.Call(&Coordinator::CancelOperation, request), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

}  // namespace
}  // namespace espalier
