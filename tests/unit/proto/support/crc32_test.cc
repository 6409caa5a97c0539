#include "proto/support/crc32.h"

#include <zlib.h>

#include <string>

#include "gtest/gtest.h"

namespace espalier {
namespace {

uint32_t Of(const std::string& text) {
  return Crc32(0, text.data(), text.size());
}

TEST(Crc32Test, IsZlibs) {
  EXPECT_EQ(Of("123456789"), 0xCBF43926u);  // the check value of CRC-32/ISO-HDLC
  EXPECT_EQ(Of(""), 0u);
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += static_cast<char>(i * 31);
    ASSERT_EQ(Of(text),
              crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));  // zlib's API
  }
}

TEST(Crc32Test, ContinuesAndCombines) {
  const std::string a = "mask", b = "s.safetensors";
  EXPECT_EQ(Crc32(Of(a), b.data(), b.size()), Of(a + b));
  EXPECT_EQ(Crc32Combine(Of(a), Of(b), b.size()), Of(a + b));
  EXPECT_EQ(Crc32Combine(Of(a), Of(""), 0), Of(a));
}

}  // namespace
}  // namespace espalier
