#include "proto/support/errors.h"

#include <set>

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::HasReason;

TEST(ErrorsTest, EveryReasonHasARowOfItsOwn) {
  std::set<v1::ErrorReason> seen;
  for (int i = 1; i < v1::ErrorReason_ARRAYSIZE; ++i) {
    const auto reason = static_cast<v1::ErrorReason>(i);
    ASSERT_TRUE(v1::ErrorReason_IsValid(i)) << i;
    EXPECT_EQ(TraitsOf(reason).reason, reason);
    EXPECT_NE(TraitsOf(reason).code, absl::StatusCode::kOk);
    EXPECT_NE(TraitsOf(reason).exit_code, kExitOk);
    EXPECT_TRUE(seen.insert(reason).second);
  }
}

TEST(ErrorsTest, CarriesReasonAndMetadata) {
  const absl::Status status = MakeError(v1::ERROR_REASON_RECIPE_INVALID, "bad", {{"line", "3"}, {"field", "a.b"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_RECIPE_INVALID, "bad"));
  EXPECT_EQ(ReasonName(status), "RECIPE_INVALID");
  EXPECT_EQ(MetadataOf(status, "line"), "3");
  EXPECT_EQ(MetadataOf(status, "nothing"), "");
  EXPECT_EQ(ErrorInfoOf(status)->domain(), "espalier");
  EXPECT_EQ(ExitCodeOf(status), kExitInvalid);
}

TEST(ErrorsTest, MessageAndDetailsStayUnderFourKilobytes) {
  const std::string text(100'000, 'x');
  const absl::Status status = MakeError(v1::ERROR_REASON_RECIPE_INVALID, text, {{"a", text}, {"b", text}});
  EXPECT_LE(status.message().size() + ErrorInfoOf(status)->ByteSizeLong(), 4096u + 100);
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_RECIPE_INVALID));
}

TEST(ErrorsTest, TravelsThroughMessages) {
  const absl::Status status = MakeError(v1::ERROR_REASON_WORKER_LOST, "rank 1 is gone", {{"rank", "1"}});
  EXPECT_EQ(FromProto(ToProto(status)), status);
  EXPECT_TRUE(FromProto(ToProto(absl::OkStatus())).ok());
}

TEST(ErrorsTest, TravelsThroughALog) {
  const absl::Status status = MakeError(v1::ERROR_REASON_CANNOT_BIND, "cannot listen: in use", {{"address", "a:1"}});
  const std::string line = ErrorLine("espalier-worker", status);
  EXPECT_EQ(line, "espalier-worker: CANNOT_BIND: cannot listen: in use");
  const std::optional<absl::Status> read = FromErrorLine("espalier-worker", line);
  ASSERT_TRUE(read.has_value());
  EXPECT_THAT(*read, HasReason(v1::ERROR_REASON_CANNOT_BIND, "cannot listen: in use"));
  for (const char* other : {"", "espalier-worker: ", "espalier-worker: CANNOT_BIND", "espalier-worker: NO_REASON: text",
                            "espalier-coordinator: CANNOT_BIND: text", "2026-01-01 info worker starting"}) {
    EXPECT_EQ(FromErrorLine("espalier-worker", other), std::nullopt) << other;
  }
}

TEST(ErrorsTest, TextThatIsNotUtf8StillTravels) {
  const std::string text = "caf\xc3\xa9 \xff \xed\xa0\x80";
  const absl::Status status = MakeError(v1::ERROR_REASON_CHECKPOINT_INVALID, text, {{"file", text}});
  EXPECT_EQ(status.message(), "caf\xc3\xa9 \\xff \\xed\\xa0\\x80");
  EXPECT_EQ(MetadataOf(FromProto(ToProto(status)), "file"), status.message());
  // Nor is a sequence cut in two.
  const absl::Status cut = MakeError(v1::ERROR_REASON_CHECKPOINT_INVALID, std::string(3499, 'x') + "\xc3\xa9");
  EXPECT_EQ(cut.message(), std::string(3499, 'x'));
}

TEST(ErrorsTest, AnnotateKeepsTheReasonAndItsOwnKeys) {
  const absl::Status status = MakeError(v1::ERROR_REASON_WORKER_LOST, "gone", {{"rank", "1"}});
  const absl::Status more = Annotate(status, "run a: ", {{"rank", "2"}, {"worker", "w"}});
  EXPECT_THAT(more, HasReason(v1::ERROR_REASON_WORKER_LOST, "run a: gone"));
  EXPECT_EQ(MetadataOf(more, "rank"), "1");
  EXPECT_EQ(MetadataOf(more, "worker"), "w");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
}

TEST(ErrorsTest, JoinLimitedSaysHowManyMore) {
  EXPECT_EQ(JoinLimited(std::vector<std::string>{"a", "b"}, "; "), "a; b");
  EXPECT_EQ(JoinLimited(std::vector<std::string>{"aaa", "bbb", "ccc"}, "; ", 8), "aaa; bbb; and 1 more");
  EXPECT_EQ(JoinLimited(std::vector<std::string>{}, "; "), "");
}

TEST(ErrorsTest, ForeignStatusesHaveExitCodesToo) {
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), kExitFailed);
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), kExitOk);
}

}  // namespace
}  // namespace espalier
