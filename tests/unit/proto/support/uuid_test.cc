#include "proto/support/uuid.h"

#include <set>

#include "gtest/gtest.h"

namespace espalier {
namespace {

TEST(UuidTest, AreWellFormedAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string uuid = NewUuid();
    EXPECT_TRUE(IsUuid(uuid)) << uuid;
    EXPECT_EQ(uuid[14], '4');
    EXPECT_TRUE(seen.insert(uuid).second);
  }
}

TEST(UuidTest, RefusesOthers) {
  EXPECT_FALSE(IsUuid(""));
  EXPECT_FALSE(IsUuid("01234567-89ab-cdef-0123-456789abcdeg"));
  EXPECT_FALSE(IsUuid("0123456789abcdef0123456789abcdef0000"));
  EXPECT_TRUE(IsUuid("01234567-89AB-cdef-0123-456789abcdef"));
}

}  // namespace
}  // namespace espalier
