#include "worker/shard/storage.h"

#include <algorithm>
#include <fstream>

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::HasReason;

TEST(StorageTest, IsAlignedAndZero) {
  for (const int64_t bytes : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{65}, int64_t{4097}, int64_t{1} << 20,
                              (int64_t{1} << 20) + 1, (int64_t{1} << 22) - 3}) {
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Storage> storage, Storage::Allocate(bytes));
    const absl::Span<std::byte> span = storage->bytes();
    ASSERT_EQ(static_cast<int64_t>(span.size()), bytes);
    void* data = span.data();
    size_t room = span.size();
    EXPECT_EQ(std::align(64, 1, data, room), span.data()) << bytes;
    EXPECT_TRUE(std::all_of(span.begin(), span.end(), [](std::byte b) { return b == std::byte{0}; })) << bytes;
    std::fill(span.begin(), span.end(), std::byte{0xA5});  // dirty for whoever gets this memory next
  }
}

TEST(StorageTest, NothingIsFine) {
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Storage> storage, Storage::Allocate(0));
  EXPECT_TRUE(storage->bytes().empty());
}

TEST(StorageTest, OneMappingServesMany) {
  const std::vector<int64_t> sizes = {3, 0, 65, 2 << 20};
  ASSERT_OK_AND_ASSIGN(auto all, Storage::AllocateAll(sizes));
  ASSERT_EQ(all.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(all[i]->bytes().size(), static_cast<size_t>(sizes[i]));
    for (std::byte& b : all[i]->bytes()) b = static_cast<std::byte>(i + 1);
  }
  // One outlives the others, and none wrote over another.
  const std::shared_ptr<Storage> last = all[2];
  for (const std::byte b : all[0]->bytes()) EXPECT_EQ(b, std::byte{1});
  all.clear();
  for (const std::byte b : last->bytes()) EXPECT_EQ(b, std::byte{3});
}

TEST(StorageTest, SaysWhenTheMachineHasNoSuchMemory) {
  EXPECT_THAT(Storage::Allocate(int64_t{1} << 60),
              HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED, ::testing::HasSubstr("1152921504606846976 bytes")));
  EXPECT_THAT(Storage::Allocate(-1), HasReason(v1::ERROR_REASON_INVARIANT));
}

// The resident pages of this process, of 4 KiB.
int64_t ResidentPages() {
  int64_t size = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}

TEST(StorageTest, PagesComeWhenTheyAreTouched) {
  const int64_t before = ResidentPages();
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Storage> storage, Storage::Allocate(int64_t{1} << 30));
  EXPECT_EQ(storage->bytes()[size_t{1} << 29], std::byte{0});
  EXPECT_LT(ResidentPages() - before, int64_t{1} << 16);
}

}  // namespace
}  // namespace espalier
