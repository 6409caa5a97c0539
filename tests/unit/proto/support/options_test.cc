#include "proto/support/options.h"

#include "proto/support/errors.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::HasReason;
using ::testing::HasSubstr;

TEST(CheckAddressTest, TakesHostAndPort) {
  EXPECT_OK(CheckAddress("coordinator", "127.0.0.1:4770"));
  EXPECT_OK(CheckAddress("coordinator", "[::1]:4770"));
  EXPECT_OK(CheckAddress("coordinator", "coordinator.example:1"));
  EXPECT_OK(CheckAddress("coordinator", "unix:/run/espalier.sock"));
  for (const char* bad :
       {"", "4770", "host", "host:", ":4770", "host:0", "host:-1", "host:99999", "::1:4770", "host:port", "unix:"}) {
    const absl::Status status = CheckAddress("coordinator", bad);
    EXPECT_THAT(status, HasReason(v1::ERROR_REASON_REQUEST_INVALID, HasSubstr("--coordinator: '"))) << bad;
    EXPECT_EQ(MetadataOf(status, "field"), "coordinator");
  }
}

TEST(CheckAddressTest, PortZeroIsForServers) {
  EXPECT_OK(CheckAddress("listen", "127.0.0.1:0", PortZero::kTakesFreePort));
  EXPECT_THAT(CheckAddress("listen", "127.0.0.1:65536", PortZero::kTakesFreePort),
              HasReason(v1::ERROR_REASON_REQUEST_INVALID, HasSubstr("port of 0 to 65535")));
}

TEST(ParseDurationOptionTest, TakesTenMillisecondsToADay) {
  EXPECT_EQ(*ParseDurationOption("lease", "10ms"), absl::Milliseconds(10));
  EXPECT_EQ(*ParseDurationOption("lease", "1m30s"), absl::Seconds(90));
  EXPECT_EQ(*ParseDurationOption("lease", "24h"), absl::Hours(24));
  for (const char* bad : {"", "15", "soon", "0s", "-1s", "9ms", "25h", "inf"}) {
    const auto duration = ParseDurationOption("lease", bad);
    EXPECT_THAT(duration, HasReason(v1::ERROR_REASON_REQUEST_INVALID, HasSubstr("--lease: '"))) << bad;
    EXPECT_EQ(MetadataOf(duration.status(), "field"), "lease");
  }
}

}  // namespace
}  // namespace espalier
