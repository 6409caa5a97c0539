// What the kernels of worker/device/cuda do on a GPU. Without one only the refusals are tested, and the rest is skipped.

#include "proto/support/errors.h"
#include "tests/unit/worker/device/accelerator_contract.h"
#include "worker/device/cuda/cuda_accelerator.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Accelerator>> device = OpenCuda(0);
    if (!device.ok()) GTEST_SKIP() << device.status().message();
    EXPECT_THAT((*device)->name(), HasSubstr("cuda:0 "));
    UseAccelerator(*std::move(device));
  }
  ~CudaTest() override { UseAccelerator(nullptr); }
};

TEST_F(CudaTest, DoesWhatTheCpuDoes) {
  for (const v1::Dtype dtype : EveryDtype()) {
    for (const int64_t count : {0, 1, 63, 64, 65, 200, 4097, 1'000'003})
      CheckAccelerator(dtype, count, static_cast<uint64_t>(count));
  }
}

TEST_F(CudaTest, CountsMoreThanOneRoundOfTheGrid) {
  CheckAccelerator(v1::DTYPE_BF16, 70'000'001, 7);
}

TEST_F(CudaTest, ClearsShards) {
  const std::shared_ptr<Storage> storage = Storage::Allocate(1 << 20).value();
  EXPECT_EQ(CountZeros(v1::DTYPE_F32, storage->bytes()), 1 << 18);
}

TEST(CudaRefusalTest, OfNoSuchGpu) {
  const absl::Status status = OpenCuda(4711).status();
  EXPECT_EQ(ReasonOf(status), v1::ERROR_REASON_REQUEST_INVALID);
  EXPECT_EQ(MetadataOf(status, "field"), "device");
  EXPECT_THAT(std::string(status.message()), HasSubstr("GPU"));
}

}  // namespace
}  // namespace espalier
