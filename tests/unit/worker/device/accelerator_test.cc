#include "worker/device/accelerator.h"

#include "tests/unit/worker/device/accelerator_contract.h"
#include "tests/unit/worker/device/host_accelerator.h"

namespace espalier {
namespace {

class AcceleratorTest : public ::testing::Test {
 protected:
  AcceleratorTest() { UseAccelerator(std::make_unique<HostAccelerator>()); }
  ~AcceleratorTest() override { UseAccelerator(nullptr); }
};

TEST_F(AcceleratorTest, DoesWhatTheCpuDoes) {
  for (const v1::Dtype dtype : EveryDtype()) {
    for (const int64_t count : {0, 1, 63, 64, 65, 200, 4097})
      CheckAccelerator(dtype, count, static_cast<uint64_t>(count));
  }
}

TEST_F(AcceleratorTest, KnowsItsMemoryAndNoOther) {
  auto all = Storage::AllocateAll({100, 0, 5000});
  ASSERT_TRUE(all.ok());
  for (const auto& storage : *all) {
    if (storage->bytes().empty()) continue;
    EXPECT_NE(AcceleratorOf(storage->bytes().data()), nullptr);
    EXPECT_NE(AcceleratorOf(&storage->bytes().back()), nullptr);
    EXPECT_EQ(storage->bytes()[0], std::byte{0});
  }
  const std::byte* const gone = all->back()->bytes().data();
  const std::byte on_stack{};
  EXPECT_EQ(AcceleratorOf(&on_stack), nullptr);
  EXPECT_EQ(AcceleratorOf(nullptr), nullptr);
  all->clear();
  EXPECT_EQ(AcceleratorOf(gone), nullptr);
}

TEST_F(AcceleratorTest, StorageOutlivesIt) {
  const std::shared_ptr<Storage> storage = Storage::Allocate(64).value();
  UseAccelerator(nullptr);
  EXPECT_EQ(AcceleratorOf(storage->bytes().data()), nullptr);
  EXPECT_EQ(CountZeros(v1::DTYPE_F32, storage->bytes()), 16);
}

TEST(NoAcceleratorTest, StorageIsTheHosts) {
  EXPECT_FALSE(AcceleratorInUse());
  const std::shared_ptr<Storage> storage = Storage::Allocate(64).value();
  EXPECT_EQ(AcceleratorOf(storage->bytes().data()), nullptr);
}

}  // namespace
}  // namespace espalier
