// The founding defect, made on purpose, in the build with fault points.

#include <stdlib.h>

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

class SessionFaultsTest : public ::testing::Test {
 protected:
  SessionFaultsTest() {
    testing::WriteTinyModel(model_, {{"a.weight", Ramp(4, 6)}});
    setenv("ESPALIER_FAULT_LOG", (dir_ / "faults").c_str(), 1);
  }
  ~SessionFaultsTest() override {
    for (const char* name : {"ESPALIER_FAULT", "ESPALIER_FAULT_LOG", "ESPALIER_CHECKS"}) unsetenv(name);
  }
  void Load(RunningSession&) {
    session_ = coordinator_.Accept();
    ASSERT_NE(session_, nullptr);
    ASSERT_OK(session_->Run(commands_.Join(0, 1))->status());
    ASSERT_OK(session_->Run(commands_.Load(model_))->status());
  }

  TempDir dir_;
  const std::string model_ = dir_ / "model";
  FakeCoordinator coordinator_;
  FakeGroups groups_;
  Commands commands_;
  std::shared_ptr<FakeSession> session_;
};

TEST_F(SessionFaultsTest, TheSecondPathFindsAReboundParameter) {  // known-bugs 1
  setenv("ESPALIER_FAULT", "after_select=rebind", 1);
  RunningSession worker(coordinator_, groups_);
  Load(worker);
  const auto updated = session_->Run(commands_.Update(1, {{"a.weight", 12}}));
  EXPECT_THAT(updated->status(), HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE, HasSubstr("a.weight")));
  EXPECT_EQ(MetadataOf(updated->status(), "want"), "12");
  EXPECT_EQ(MetadataOf(updated->status(), "got"), "0");
  EXPECT_THAT(testing::ReadFile(dir_ / "faults"), HasSubstr("after_select@0"));
  // Nothing of that version is reported or saved.
  EXPECT_THAT(session_->Run(commands_.Report())->status(), HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE));
  v1::Command save = commands_.Next();
  save.mutable_save_shards()->set_path(dir_ / "out");
  EXPECT_THAT(session_->Run(save)->status(), HasReason(v1::ERROR_REASON_MASK_NOT_EFFECTIVE));
}

TEST_F(SessionFaultsTest, ItIsTheSecondPathThatFindsIt) {
  setenv("ESPALIER_FAULT", "after_select=rebind", 1);
  setenv("ESPALIER_CHECKS", "off", 1);
  RunningSession worker(coordinator_, groups_);
  Load(worker);
  ASSERT_OK(session_->Run(commands_.Update(1, {{"a.weight", 12}}))->status());
  const auto report = session_->Run(commands_.Report());
  ASSERT_OK(report->status());
  EXPECT_EQ(RowOf(*report, "a.weight").masked(), 12);
  EXPECT_EQ(RowOf(*report, "a.weight").zeros(), 0);
}

TEST_F(SessionFaultsTest, AnUndisturbedUpdateIsFine) {
  RunningSession worker(coordinator_, groups_);
  Load(worker);
  EXPECT_OK(session_->Run(commands_.Update(1, {{"a.weight", 12}}))->status());
  EXPECT_FALSE(std::filesystem::exists(dir_ / "faults"));
}

}  // namespace
}  // namespace espalier
