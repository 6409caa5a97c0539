#include "worker/session/local_address.h"

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::HasReason;
using ::testing::HasSubstr;

TEST(LocalAddressTest, ReachesALoopbackCoordinatorFromLoopback) {  // known-bugs 40
  ASSERT_OK_AND_ASSIGN(const std::string address, LocalAddressTowards("127.0.0.1:4770"));
  EXPECT_EQ(address, "127.0.0.1");
}

TEST(LocalAddressTest, AnUnknownHostIsNamed) {
  EXPECT_THAT(LocalAddressTowards("no-such-host.invalid:1"),
              HasReason(v1::ERROR_REASON_UNREACHABLE, HasSubstr("no-such-host.invalid")));
}

TEST(LocalAddressTest, KnowsInterfaces) {
  ASSERT_OK_AND_ASSIGN(const std::string address, AddressOfInterface("lo"));
  EXPECT_EQ(address, "127.0.0.1");
  ASSERT_OK_AND_ASSIGN(const std::string interface, InterfaceOfAddress("127.0.0.1"));
  EXPECT_EQ(interface, "lo");
  EXPECT_THAT(InterfaceOfAddress("192.0.2.1"), HasReason(v1::ERROR_REASON_CANNOT_BIND, HasSubstr("192.0.2.1")));
}

TEST(LocalAddressTest, AWrongInterfaceIsRefusedWithTheRightOnes) {  // known-bugs 40
  EXPECT_THAT(AddressOfInterface("^docker0"),
              HasReason(v1::ERROR_REASON_CANNOT_BIND, ::testing::AllOf(HasSubstr("^docker0"), HasSubstr("lo"))));
}

TEST(LocalAddressTest, ChecksAddresses) {
  EXPECT_OK(CheckLocalAddress("127.0.0.1"));
  EXPECT_THAT(CheckLocalAddress("192.0.2.1"), HasReason(v1::ERROR_REASON_CANNOT_BIND, HasSubstr("192.0.2.1")));
  EXPECT_THAT(CheckLocalAddress("localhost"), HasReason(v1::ERROR_REASON_CANNOT_BIND, HasSubstr("IPv4")));
}

}  // namespace
}  // namespace espalier
