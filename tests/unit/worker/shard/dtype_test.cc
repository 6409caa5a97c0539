#include "worker/shard/dtype.h"

#include "gtest/gtest.h"

namespace espalier {
namespace {

TEST(DtypeTest, EveryNameReadsBackAndHasASize) {
  for (int i = v1::DTYPE_UNSPECIFIED + 1; i < v1::Dtype_ARRAYSIZE; ++i) {
    const v1::Dtype dtype = static_cast<v1::Dtype>(i);
    EXPECT_EQ(ParseDtype(DtypeName(dtype)), dtype);
    EXPECT_GT(DtypeSize(dtype), 0) << DtypeName(dtype);
  }
}

TEST(DtypeTest, UsesTheNamesOfSafetensors) {
  EXPECT_EQ(DtypeName(v1::DTYPE_BF16), "BF16");
  EXPECT_EQ(DtypeName(v1::DTYPE_F8_E4M3), "F8_E4M3");
  EXPECT_EQ(ParseDtype("F8_E5M2"), v1::DTYPE_F8_E5M2);
}

// known-bugs 51
TEST(DtypeTest, NeverGuessesAnUnknownName) {
  for (const char* name : {"", "bf16", "BFLOAT16", "F4", "DTYPE_F32", "F32 ", "UNSPECIFIED"}) {
    EXPECT_EQ(ParseDtype(name), v1::DTYPE_UNSPECIFIED) << name;
  }
  EXPECT_EQ(DtypeSize(v1::DTYPE_UNSPECIFIED), 0);
}

TEST(DtypeTest, SizesAreThoseOfTheFormat) {
  EXPECT_EQ(DtypeSize(v1::DTYPE_BOOL), 1);
  EXPECT_EQ(DtypeSize(v1::DTYPE_F8_E8M0), 1);
  EXPECT_EQ(DtypeSize(v1::DTYPE_BF16), 2);
  EXPECT_EQ(DtypeSize(v1::DTYPE_U32), 4);
  EXPECT_EQ(DtypeSize(v1::DTYPE_C64), 8);
  EXPECT_EQ(DtypeSize(v1::DTYPE_F64), 8);
}

TEST(DtypeTest, FourDtypesArePrunable) {
  int prunable = 0;
  for (int i = 0; i < v1::Dtype_ARRAYSIZE; ++i) prunable += IsPrunableDtype(static_cast<v1::Dtype>(i)) ? 1 : 0;
  EXPECT_EQ(prunable, 4);
  EXPECT_TRUE(IsPrunableDtype(v1::DTYPE_F16));
  EXPECT_FALSE(IsPrunableDtype(v1::DTYPE_F8_E4M3));
  EXPECT_TRUE(IsFloatDtype(v1::DTYPE_F8_E4M3));
  EXPECT_FALSE(IsFloatDtype(v1::DTYPE_I64));
}

}  // namespace
}  // namespace espalier
