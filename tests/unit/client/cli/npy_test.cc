#include "client/cli/npy.h"

#include <string.h>

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace espalier::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Npy, HeaderIsAlignedAndAPythonLiteral) {
  const std::string header = NpyHeader("<f4", {5, 3});
  EXPECT_EQ(header.size() % 64, 0u);
  EXPECT_EQ(header.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t length = static_cast<unsigned char>(header[8]) + 256 * static_cast<unsigned char>(header[9]);
  EXPECT_EQ(length + 10, header.size());
  EXPECT_THAT(header.substr(10), StartsWith("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3), }"));
  EXPECT_EQ(header.back(), '\n');
  EXPECT_THAT(NpyHeader("<f4", {5}), HasSubstr("'shape': (5,), }"));
  EXPECT_THAT(NpyHeader("<f4", {}), HasSubstr("'shape': (), }"));
}

TEST(Npy, EveryDtypeHasAType) {
  for (int i = v1::Dtype_MIN + 1; i < v1::Dtype_ARRAYSIZE; ++i) {
    const auto type = NpyTypeOf(static_cast<v1::Dtype>(i));
    ASSERT_OK(type);
    EXPECT_EQ(type->descr.back() - '0', type->bytes) << type->descr;
  }
  EXPECT_THAT(NpyTypeOf(v1::DTYPE_UNSPECIFIED), espalier::testing::HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

TEST(Npy, WideningBf16IsExact) {
  const uint16_t bits[] = {0x3F80, 0x8000, 0x7FC0, 0xC049};
  const std::string wide =
      WidenBf16(std::string(static_cast<const char*>(static_cast<const void*>(bits)), sizeof bits));
  float values[4];
  ASSERT_EQ(wide.size(), sizeof values);
  memcpy(values, wide.data(), sizeof values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_TRUE(values[1] == 0.0f && std::signbit(values[1]));
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(values[3], -3.140625f);
}

}  // namespace
}  // namespace espalier::cli
