#include "client/cli/json.h"

#include "espalier/v1/resources.pb.h"
#include "gtest/gtest.h"
#include "proto/support/errors.h"

namespace espalier::cli {
namespace {

TEST(Json, WritesNumbersEnumsTimesAndErrorsPlainly) {
  v1::Run run;
  run.set_name("runs/a");
  run.set_revision(int64_t{1} << 40);
  run.set_state(v1::Run::STATE_FAILED);
  run.set_worker_kind(v1::WORKER_KIND_CHECKPOINT);
  run.mutable_create_time()->set_seconds(1'700'000'000);
  run.mutable_sparsity()->set_sparsity_percent(15.291973225121358);
  *run.mutable_error() = ToProto(MakeError(v1::ERROR_REASON_WORKER_LOST, "rank 1 is gone", {{"rank", "1"}}));
  const auto json = ToJson(run);
  EXPECT_EQ(json["name"], "runs/a");
  EXPECT_EQ(json["revision"], int64_t{1} << 40);
  EXPECT_EQ(json["state"], "FAILED");
  EXPECT_EQ(json["worker_kind"], "CHECKPOINT");
  EXPECT_EQ(json["create_time"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(json["hold"], false);
  EXPECT_FALSE(json.contains("plan"));
  EXPECT_EQ(json["error"].dump(),
            R"({"code":"ABORTED","reason":"WORKER_LOST","message":"rank 1 is gone","metadata":{"rank":"1"}})");
  EXPECT_NE(json.dump().find("15.291973225121358"), std::string::npos);
}

TEST(Json, KeepsFieldOrderAndLists) {
  v1::PlannedParameter parameter;
  parameter.set_name("w");
  parameter.set_dtype(v1::DTYPE_BF16);
  parameter.add_shape(2);
  parameter.add_shape(3);
  EXPECT_EQ(OneLine(ToJson(parameter)),
            "{\"name\":\"w\",\"modifier\":0,\"numel\":0,\"dtype\":\"BF16\",\"shape\":[2,3],\"final_target\":0}\n");
}

}  // namespace
}  // namespace espalier::cli
