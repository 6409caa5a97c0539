#include "client/cli/text.h"

#include "gtest/gtest.h"

namespace espalier::cli {
namespace {

TEST(Text, Thousands) {
  EXPECT_EQ(Thousands(0), "0");
  EXPECT_EQ(Thousands(999), "999");
  EXPECT_EQ(Thousands(1000), "1,000");
  EXPECT_EQ(Thousands(15187968), "15,187,968");
  EXPECT_EQ(Thousands(-123456), "-123,456");
}

TEST(Text, BytesInDecimalUnits) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(999), "999 B");
  EXPECT_EQ(Bytes(1000), "1.0 kB");
  EXPECT_EQ(Bytes(269060552), "269.1 MB");
  EXPECT_EQ(Bytes(999'999'999), "1.0 GB");
  EXPECT_EQ(Bytes(INT64_MAX), "9223.4 PB");
}

TEST(Text, Percent) {
  EXPECT_EQ(Percent(2322540, 15187968), "15.29 %");
  EXPECT_EQ(Percent(0, 0), "-");
}

TEST(Text, Seconds) {
  EXPECT_EQ(Seconds(absl::Milliseconds(421)), "0.42 s");
  EXPECT_EQ(Seconds(absl::Milliseconds(9996)), "10.0 s");
  EXPECT_EQ(Seconds(absl::Seconds(245)), "4 min 05 s");
  EXPECT_EQ(Seconds(absl::Seconds(7800)), "2 h 10 min");
}

TEST(Text, TruncateCountsColumns) {
  EXPECT_EQ(Truncate("abc", 3), "abc");
  EXPECT_EQ(Truncate("abcd", 3), "ab…");
  EXPECT_EQ(Truncate("äöüß", 3), "äö…");
  EXPECT_EQ(Truncate("abcd", 0), "");
  EXPECT_EQ(DisplayWidth("äö…"), 3u);
}

TEST(Text, TableAlignsAndTrims) {
  Table table({"NAME", ">COUNT", "NOTE"});
  EXPECT_EQ(table.Render(), "");
  table.Add({"a", "1", ""});
  table.Add({"long…", "1,000", "x"});
  EXPECT_EQ(table.Render(),
            "NAME   COUNT  NOTE\n"
            "a          1\n"
            "long…  1,000  x\n");
}

}  // namespace
}  // namespace espalier::cli
