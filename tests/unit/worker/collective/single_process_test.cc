#include "worker/collective/single_process.h"

#include "proto/support/errors.h"
#include "tests/unit/worker/collective/collective_contract.h"

namespace espalier {
namespace {

using ::espalier::testing::HasReason;
using ::testing::HasSubstr;

TEST(SingleProcess, KeepsTheContract) {
  SingleProcess group;
  testing::ExpectContract(group);
}

TEST(SingleProcess, RefusesBuffersOfTheWrongSizeAndIsPoisonedByIt) {
  SingleProcess group;
  std::vector<char> three(3);
  std::vector<char> four(4);
  EXPECT_THAT(group.AllGather({"report", 1}, testing::BytesOf(three), testing::BytesOf(four)),
              HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("report")));
  EXPECT_THAT(group.Barrier({"save", 2}), HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("report")));
}

TEST(SingleProcess, FailsAfterCancelWithTheFirstCause) {
  SingleProcess group;
  group.Cancel(MakeError(v1::ERROR_REASON_GENERATION_STALE, "generation 3 is void"));
  group.Cancel(MakeError(v1::ERROR_REASON_WORKER_LOST, "later"));
  int64_t value = 1;
  EXPECT_THAT(group.AllReduce({"select", 1}, absl::MakeSpan(&value, 1), ReduceOp::kSum),
              HasReason(v1::ERROR_REASON_GENERATION_STALE, HasSubstr("generation 3")));
  EXPECT_EQ(group.sequence(), 0);
}

}  // namespace
}  // namespace espalier
