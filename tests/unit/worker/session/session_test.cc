#include "worker/session/session.h"

#include "proto/support/crc32.h"
#include "proto/support/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/worker/session/session_harness.h"

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

// One worker on a model of two linears and a norm.
class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    testing::WriteTinyModel(model_,
                            {{"a.weight", Ramp(4, 6)}, {"b.weight", Ramp(3, 5)}, {"norm.weight", {{2}, {1, 1}}}});
  }
  void SetUp() override {
    session_ = coordinator_.Accept();
    ASSERT_NE(session_, nullptr);
  }
  // Joined and loaded.
  void Load() {
    EXPECT_OK(session_->Run(commands_.Join(0, 1))->status());
    EXPECT_OK(session_->Run(commands_.Load(model_))->status());
  }

  TempDir dir_;
  const std::string model_ = dir_ / "model";
  FakeCoordinator coordinator_;
  FakeGroups groups_;
  Commands commands_;
  RunningSession worker_{coordinator_, groups_};
  std::shared_ptr<FakeSession> session_;
};

TEST_F(SessionTest, IntroducesItself) {
  const v1::Hello& hello = session_->hello();
  EXPECT_EQ(hello.kind(), v1::WORKER_KIND_CHECKPOINT);
  EXPECT_EQ(hello.worker(), "w0");
  EXPECT_EQ(hello.protocol_version(), 1);
  EXPECT_EQ(hello.backends(0), "gloo");
  EXPECT_EQ(hello.run(), "");
  EXPECT_EQ(hello.incarnation().size(), 36U);
}

TEST_F(SessionTest, Inspects) {
  const auto answer = session_->Run(commands_.Inspect(model_));
  ASSERT_OK(answer->status());
  v1::ModelDescription description;
  for (const v1::ResultPage& page : answer->pages) description.MergeFrom(page.model());
  ASSERT_EQ(description.parameters_size(), 3);
  EXPECT_EQ(description.parameters(0).name(), "a.weight");
  EXPECT_EQ(description.total_bytes(), (24 + 15 + 2) * 4);
  EXPECT_THAT(answer->ack.inspect_model().resolved_path(), HasSubstr("model"));
}

TEST_F(SessionTest, InspectChecksTheOutputToo) {
  v1::Command command = commands_.Inspect(model_);
  command.mutable_inspect_model()->set_output_path(model_);
  EXPECT_THAT(session_->Run(command)->status(), HasReason(v1::ERROR_REASON_OUTPUT_EXISTS));
  EXPECT_THAT(session_->Run(commands_.Inspect(dir_ / "nothing"))->status(),
              HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID));
}

TEST_F(SessionTest, CountsUpdatesAndReports) {
  Load();
  const auto counted = session_->Run(commands_.Count({{"a.weight", 12}, {"b.weight", 5}}));
  ASSERT_OK(counted->status());
  ASSERT_EQ(counted->pages.size(), 1U);
  EXPECT_EQ(counted->pages[0].counts().counts_size(), 2);
  EXPECT_EQ(counted->pages[0].counts().counts(0), 0);

  const auto updated = session_->Run(commands_.Update(1, {{"a.weight", 12}, {"b.weight", 5}}));
  ASSERT_OK(updated->status());
  const v1::CountPage& counts = updated->pages.at(0).counts();
  EXPECT_EQ(std::vector<int64_t>(counts.counts().begin(), counts.counts().end()), (std::vector<int64_t>{12, 5}));
  EXPECT_EQ(std::vector<int64_t>(counts.zeros().begin(), counts.zeros().end()), (std::vector<int64_t>{12, 5}));
  EXPECT_EQ(std::vector<int64_t>(counts.violations().begin(), counts.violations().end()), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(updated->ack.update_masks().version(), 1);
  EXPECT_NE(updated->ack.update_masks().mask_digest(), 0U);
  EXPECT_EQ(updated->ack.update_masks().bytes_sent(), 0);

  for (const v1::ReportMode mode : {v1::REPORT_MODE_SHARD_COUNTS, v1::REPORT_MODE_GATHER}) {
    const auto report = session_->Run(commands_.Report(mode));
    ASSERT_OK(report->status());
    EXPECT_EQ(report->ack.report_sparsity().mask_version(), 1);
    EXPECT_EQ(RowOf(*report, "a.weight").zeros(), 12);
    EXPECT_EQ(RowOf(*report, "a.weight").masked(), 12);
    EXPECT_EQ(RowOf(*report, "a.weight").planned(), 12);
    EXPECT_EQ(RowOf(*report, "b.weight").zeros(), 5);
    EXPECT_EQ(RowOf(*report, "norm.weight").zeros(), 0);
  }
}

TEST_F(SessionTest, TheDigestCoversAllMasks) {
  Load();
  const auto both = session_->Run(commands_.Update(1, {{"a.weight", 12}, {"b.weight", 5}}));
  ASSERT_OK(both->status());
  ASSERT_OK(session_->Run(commands_.Leave())->status());
  Load();
  const auto first = session_->Run(commands_.Update(1, {{"a.weight", 12}}));
  const auto second = session_->Run(commands_.Update(2, {{"b.weight", 5}}));
  EXPECT_NE(first->ack.update_masks().mask_digest(), both->ack.update_masks().mask_digest());
  EXPECT_EQ(second->ack.update_masks().mask_digest(), both->ack.update_masks().mask_digest());
}

TEST_F(SessionTest, MergesThePartsOfACommand) {
  Load();
  const v1::Command whole = commands_.Update(1, {{"a.weight", 12}, {"b.weight", 5}});
  v1::Command first = whole;
  first.set_last_part(false);
  first.mutable_update_masks()->mutable_spec()->mutable_parameters()->RemoveLast();
  first.mutable_update_masks()->mutable_spec()->mutable_targets()->RemoveLast();
  v1::Command second;
  second.set_command_id(whole.command_id());
  second.set_last_part(true);
  second.mutable_update_masks()->mutable_spec()->add_parameters("b.weight");
  second.mutable_update_masks()->mutable_spec()->add_targets(5);
  session_->Send(first);
  session_->Send(second);
  const auto answer = session_->Await(whole.command_id());
  ASSERT_OK(answer->status());
  EXPECT_EQ(answer->pages.at(0).counts().counts_size(), 2);
}

TEST_F(SessionTest, ParametersAreUploadedWithTheirRange) {
  Load();
  ASSERT_OK(session_->Run(commands_.Update(1, {{"a.weight", 12}}))->status());
  const v1::Command command = commands_.Gather("a.weight", 10, 14);
  ASSERT_OK(session_->Run(command)->status());
  const auto upload = coordinator_.NextUpload();
  ASSERT_TRUE(upload);
  EXPECT_EQ(upload->first.command_id(), command.command_id());
  EXPECT_EQ(upload->first.worker(), "w0");
  EXPECT_EQ(upload->first.incarnation(), session_->hello().incarnation());
  const v1::ParameterHeader& header = upload->first.header();
  EXPECT_EQ(header.parameter().name(), "a.weight");
  EXPECT_EQ(header.generation(), 1);
  EXPECT_EQ(header.mask_version(), 1);
  EXPECT_EQ(header.begin(), 10);
  EXPECT_EQ(header.end(), 14);
  EXPECT_EQ(header.total_bytes(), 16);
  EXPECT_EQ(header.total_chunks(), 1);
  const float want[] = {0, 0, 13, 14};
  ASSERT_EQ(upload->bytes.size(), sizeof want);
  EXPECT_EQ(std::memcmp(upload->bytes.data(), want, sizeof want), 0);
  EXPECT_EQ(upload->chunks[0].crc32(), Crc32(0, want, sizeof want));
}

TEST_F(SessionTest, MasksAreUploadedRowByRow) {
  Load();
  ASSERT_OK(session_->Run(commands_.Update(1, {{"a.weight", 8}}))->status());
  ASSERT_OK(session_->Run(commands_.Gather("a.weight", 0, 0, true))->status());
  auto upload = coordinator_.NextUpload();
  ASSERT_TRUE(upload);
  // 4 rows of 6: the first is pruned, and two elements of the second.
  EXPECT_EQ(upload->bytes, std::string("\x00\x3C\x3F\x3F", 4));
  EXPECT_EQ(upload->first.header().end(), 24);
  // Without a mask everything is kept.
  ASSERT_OK(session_->Run(commands_.Gather("b.weight", 0, 0, true))->status());
  upload = coordinator_.NextUpload();
  EXPECT_EQ(upload->bytes, std::string("\x1F\x1F\x1F", 3));
}

TEST_F(SessionTest, AnUploadThatNobodyWantsFailsTheCommandAlone) {
  Load();
  coordinator_.AnswerUploads({grpc::StatusCode::NOT_FOUND, "nobody waits"});
  EXPECT_EQ(session_->Run(commands_.Gather("a.weight", 0, 24))->status().code(), absl::StatusCode::kNotFound);
  EXPECT_OK(session_->Run(commands_.Report())->status());
}

TEST_F(SessionTest, BadGathersAreRefused) {
  Load();
  EXPECT_THAT(session_->Run(commands_.Gather("c.weight", 0, 1))->status(),
              HasReason(v1::ERROR_REASON_PARAMETER_NOT_FOUND, HasSubstr("c.weight")));
  EXPECT_THAT(session_->Run(commands_.Gather("a.weight", 0, 25))->status(),
              HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  EXPECT_THAT(session_->Run(commands_.Gather("a.weight", 5, 4))->status(), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

TEST_F(SessionTest, SavesAndPublishes) {
  Load();
  ASSERT_OK(session_->Run(commands_.Update(1, {{"a.weight", 12}}))->status());
  v1::Command save = commands_.Next();
  save.mutable_save_shards()->set_path(dir_ / "out");
  save.mutable_save_shards()->set_token("r-1");
  const auto saved = session_->Run(save);
  ASSERT_OK(saved->status());
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
  v1::Command publish = commands_.Next();
  v1::PublishCheckpoint& op = *publish.mutable_publish_checkpoint();
  op.set_path(dir_ / "out");
  op.set_token("r-1");
  EXPECT_EQ(saved->ack.save_shards().checksums_size(), 0);
  for (const v1::ResultPage& page : saved->pages) op.mutable_checksums()->MergeFrom(page.checksums().checksums());
  EXPECT_GT(op.checksums_size(), 0);
  op.set_mask_digest(1);
  ASSERT_OK(session_->Run(publish)->status());
  EXPECT_TRUE(std::filesystem::exists(dir_ / "out/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "out/espalier/espalier.json"));
}

TEST_F(SessionTest, StoredMasksKeepTheirStructure) {
  Load();
  v1::Command update = commands_.Update(1, {{"a.weight", 12}});
  v1::UpdateSpec& spec = *update.mutable_update_masks()->mutable_spec();
  spec.set_method(v1::SELECTION_METHOD_N_OF_M);
  spec.mutable_structure()->set_n(1);
  spec.mutable_structure()->set_m(2);
  ASSERT_OK(session_->Run(update)->status());
  v1::Command save = commands_.Next();
  save.mutable_save_shards()->set_path(dir_ / "out");
  save.mutable_save_shards()->set_token("r-1");
  const auto saved = session_->Run(save);
  ASSERT_OK(saved->status());
  v1::Command publish = commands_.Next();
  v1::PublishCheckpoint& op = *publish.mutable_publish_checkpoint();
  op.set_path(dir_ / "out");
  op.set_token("r-1");
  for (const v1::ResultPage& page : saved->pages) op.mutable_checksums()->MergeFrom(page.checksums().checksums());
  v1::ParameterSparsity& row = *op.add_report();
  row.set_name("a.weight");
  row.set_dtype(v1::DTYPE_F32);
  row.mutable_structure()->set_n(1);
  row.mutable_structure()->set_m(2);
  ASSERT_OK(session_->Run(publish)->status());
  ASSERT_OK(session_->Run(commands_.Leave())->status());

  ASSERT_OK(session_->Run(commands_.Join(0, 1))->status());
  ASSERT_OK(session_->Run(commands_.Load(dir_ / "out"))->status());
  const auto structure = [&] {
    const auto report = session_->Run(commands_.Report());
    return RowOf(*report, "a.weight").structure();
  };
  EXPECT_EQ(structure().n(), 1);
  EXPECT_EQ(structure().m(), 2);
  // Held, it still is what it was; chosen anew it is not.
  v1::Command hold = commands_.Update(1, {{"a.weight", 12}});
  hold.mutable_update_masks()->mutable_spec()->set_method(v1::SELECTION_METHOD_CONSTANT);
  ASSERT_OK(session_->Run(hold)->status());
  EXPECT_EQ(structure().m(), 2);
  ASSERT_OK(session_->Run(commands_.Update(2, {{"a.weight", 13}}))->status());
  EXPECT_EQ(structure().m(), 0);
}

TEST_F(SessionTest, LeavingSweepsWhatWasNotPublished) {
  Load();
  v1::Command save = commands_.Next();
  save.mutable_save_shards()->set_path(dir_ / "outputs/out");
  save.mutable_save_shards()->set_token("r-1");
  std::filesystem::create_directory(dir_ / "outputs");
  ASSERT_OK(session_->Run(save)->status());
  EXPECT_FALSE(std::filesystem::is_empty(dir_ / "outputs"));
  ASSERT_OK(session_->Run(commands_.Leave())->status());
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "outputs"));
}

TEST_F(SessionTest, StoppingSweepsWhatWasNotPublished) {
  Load();
  v1::Command save = commands_.Next();
  save.mutable_save_shards()->set_path(dir_ / "outputs/out");
  save.mutable_save_shards()->set_token("r-1");
  std::filesystem::create_directory(dir_ / "outputs");
  ASSERT_OK(session_->Run(save)->status());
  worker_.Stop(absl::Seconds(5));
  EXPECT_OK(worker_.Wait());
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "outputs"));
}

TEST_F(SessionTest, OrderIsEnforced) {
  EXPECT_THAT(session_->Run(commands_.Load(model_))->status(), HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
  ASSERT_OK(session_->Run(commands_.Join(0, 1))->status());
  EXPECT_THAT(session_->Run(commands_.Report())->status(), HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
  EXPECT_THAT(session_->Run(commands_.Join(2, 2))->status(), HasReason(v1::ERROR_REASON_INVARIANT));
  EXPECT_THAT(session_->Run(commands_.Next())->status(), HasReason(v1::ERROR_REASON_INVARIANT));
}

TEST_F(SessionTest, AReconnectTellsWhatIsHeldAndAResendIsAnswered) {  // known-bugs 66
  Load();
  const v1::Command update = commands_.Update(1, {{"a.weight", 12}});
  const auto first = session_->Run(update);
  ASSERT_OK(first->status());
  session_->Cut();
  const std::shared_ptr<FakeSession> again = coordinator_.Accept();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->hello().incarnation(), session_->hello().incarnation());
  EXPECT_EQ(again->hello().run(), "runs/r");
  EXPECT_EQ(again->hello().generation(), 1);
  EXPECT_EQ(again->hello().mask_version(), 1);
  EXPECT_EQ(again->hello().mask_digest(), first->ack.update_masks().mask_digest());
  EXPECT_EQ(again->hello().last_command_id(), update.command_id());
  const auto second = again->Run(update);
  EXPECT_EQ(second->ack.SerializeAsString(), first->ack.SerializeAsString());
  EXPECT_EQ(second->pages.size(), first->pages.size());
}

TEST_F(SessionTest, AVoidGenerationMakesItIdle) {
  Load();
  session_->Void("runs/r", 1, "rank 1 is lost");
  EXPECT_THAT(session_->Run(commands_.Report())->status(), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  session_->Cut();
  const std::shared_ptr<FakeSession> again = coordinator_.Accept();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->hello().run(), "");
}

TEST_F(SessionTest, PathsOutsideTheRootsAreRefused) {
  TempDir root;
  RunningSession confined(coordinator_, groups_, "w1",
                          [&](SessionOptions& options) { options.roots = *PathRoots::Create({root.path()}); });
  const std::shared_ptr<FakeSession> session = coordinator_.Accept();
  ASSERT_NE(session, nullptr);
  EXPECT_THAT(session->Run(commands_.Inspect(model_))->status(), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED));
  ASSERT_OK(session->Run(commands_.Join(0, 1))->status());
  EXPECT_THAT(session->Run(commands_.Load(model_))->status(), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED));
}

TEST_F(SessionTest, StoppingWaitsForTheAnswer) {
  Load();
  const v1::Command update = commands_.Update(1, {{"a.weight", 12}});
  session_->Send(update);
  EXPECT_TRUE(session_->AwaitHeartbeat([&](const v1::Heartbeat& beat) { return beat.generation() == 1; }));
  EXPECT_OK(session_->Await(update.command_id())->status());
  worker_.Stop(absl::Seconds(5));
  EXPECT_OK(worker_.Wait());
  EXPECT_TRUE(session_->AwaitEnd());
}

}  // namespace
}  // namespace espalier
