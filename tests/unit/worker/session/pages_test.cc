#include "worker/session/handlers/pages.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace espalier {
namespace {

// known-bugs 58: what grows with the model never comes near the 4 MiB that gRPC takes as one message.
TEST(PagesTest, ChecksumsOfManyTensorsComeInSeveral) {
  constexpr int kRanges = 200'000;
  v1::SaveShardsResult result;
  result.set_bytes_written(7);
  for (int i = 0; i < kRanges; ++i) {
    v1::RangeChecksum& checksum = *result.add_checksums();
    checksum.set_file("model-00001-of-00002.safetensors");
    checksum.set_offset(i);
  }
  std::vector<v1::ResultPage> pages;
  MoveChecksumsToPages(result, pages);
  EXPECT_EQ(result.checksums_size(), 0);
  EXPECT_EQ(result.bytes_written(), 7);
  EXPECT_GT(pages.size(), 5U);
  int64_t next = 0;
  for (const v1::ResultPage& page : pages) {
    EXPECT_LE(page.ByteSizeLong(), kPageBytes + 1000);
    EXPECT_EQ(page.checksums().first(), next);
    for (const v1::RangeChecksum& checksum : page.checksums().checksums()) EXPECT_EQ(checksum.offset(), next++);
  }
  EXPECT_EQ(next, kRanges);
}

TEST(PagesTest, NothingMakesNoPage) {
  v1::SaveShardsResult result;
  std::vector<v1::ResultPage> pages;
  MoveChecksumsToPages(result, pages);
  EXPECT_TRUE(pages.empty());
}

}  // namespace
}  // namespace espalier
