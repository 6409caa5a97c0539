#include "worker/device/open_device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(OpenDeviceTest, TheCpuNeedsNoAccelerator) {
  const auto device = OpenDevice("cpu", 3);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(*device, nullptr);
}

TEST(OpenDeviceTest, RefusesWhatIsNoDevice) {
  for (const char* name : {"", "gpu", "CPU", "cuda0", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "cpu:0"}) {
    const absl::Status status = OpenDevice(name, std::nullopt).status();
    EXPECT_EQ(ReasonOf(status), v1::ERROR_REASON_REQUEST_INVALID) << name;
    EXPECT_EQ(MetadataOf(status, "field"), "device") << name;
    EXPECT_THAT(std::string(status.message()), StartsWith("--device '")) << name;
  }
}

TEST(OpenDeviceTest, SaysWhyThereIsNoSuchGpu) {
  const absl::Status status = OpenDevice("cuda:4711", std::nullopt).status();
  EXPECT_EQ(ReasonOf(status), v1::ERROR_REASON_REQUEST_INVALID);
  EXPECT_THAT(std::string(status.message()), HasSubstr("GPU"));
}

}  // namespace
}  // namespace espalier
