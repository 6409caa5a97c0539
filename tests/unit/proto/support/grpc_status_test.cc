#include "proto/support/grpc_status.h"

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

TEST(GrpcStatusTest, RoundTripKeepsReasonAndMetadata) {
  const absl::Status status = MakeError(v1::ERROR_REASON_OUTPUT_EXISTS, "out/ exists", {{"path", "out/"}});
  const grpc::Status wire = ToGrpc(status);
  EXPECT_EQ(wire.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(FromGrpc(wire), status);
}

TEST(GrpcStatusTest, StatusesOfGrpcItselfPass) {
  const absl::Status status = FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no route"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "no route");
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
}

TEST(GrpcStatusTest, DetailsThatContradictTheCodeAreIgnored) {
  const grpc::Status wire(grpc::StatusCode::INTERNAL, "x",
                          ToGrpc(MakeError(v1::ERROR_REASON_DRAINING, "y")).error_details());
  EXPECT_EQ(FromGrpc(wire).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace espalier
