#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/errors.h"

namespace espalier::testing {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

// EXPECT_THAT(Open(path), IsOk());
MATCHER(IsOk, negation ? "fails" : "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// EXPECT_THAT(Open(path), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, HasSubstr("model.safetensors")));
MATCHER_P2(HasReasonAndMessage, reason, message_matcher, "") {
  const absl::Status& status = StatusOf(arg);
  *result_listener << status.ToString();
  return ReasonOf(status) == reason && ::testing::ExplainMatchResult(::testing::Matcher<std::string>(message_matcher),
                                                                     std::string(status.message()), result_listener);
}
template <typename M>
auto HasReason(v1::ErrorReason reason, M message_matcher) {
  return HasReasonAndMessage(reason, message_matcher);
}
inline auto HasReason(v1::ErrorReason reason) {
  return HasReasonAndMessage(reason, ::testing::_);
}

}  // namespace espalier::testing

#define ESPALIER_TEST_CONCAT_INNER_(a, b) a##b
#define ESPALIER_TEST_CONCAT_(a, b) ESPALIER_TEST_CONCAT_INNER_(a, b)
// Declares `lhs` from a StatusOr, or fails the test.
#define ASSERT_OK_AND_ASSIGN(lhs, expr) ASSERT_OK_AND_ASSIGN_(ESPALIER_TEST_CONCAT_(status_or_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_(tmp, lhs, expr)       \
  auto tmp = (expr);                                \
  ASSERT_TRUE(tmp.ok()) << tmp.status().ToString(); \
  lhs = *std::move(tmp)
#define ASSERT_OK(expr) ASSERT_THAT((expr), ::espalier::testing::IsOk())
#define EXPECT_OK(expr) EXPECT_THAT((expr), ::espalier::testing::IsOk())
