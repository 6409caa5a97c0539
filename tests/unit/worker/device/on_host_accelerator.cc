// Linked with the tests of other rooms: all their shards lie in the memory of an accelerator.

#include "gtest/gtest.h"
#include "tests/unit/worker/device/host_accelerator.h"

namespace espalier {
namespace {

class OnHostAccelerator final : public ::testing::Environment {
 public:
  void SetUp() override { UseAccelerator(std::make_unique<HostAccelerator>()); }
  void TearDown() override {
    UseAccelerator(nullptr);
    EXPECT_GT(HostAccelerator::passes(), 1000) << "these tests made no use of the accelerator";
  }
};

const auto* const environment = ::testing::AddGlobalTestEnvironment(new OnHostAccelerator);

}  // namespace
}  // namespace espalier
