#include "server/recipe/rational.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace espalier {
namespace {

Rational R(const char* text) {
  return Rational::Parse(text).value();
}

TEST(BigIntTest, PrintsWhatItReads) {
  const std::vector<std::string> texts = {"0",
                                          "1",
                                          "9",
                                          "10",
                                          "4294967295",
                                          "4294967296",
                                          "18446744073709551616",
                                          "1000000000000000000000000000000000000000",
                                          "999999999999999999999999999999"};
  for (const std::string& text : texts) {
    EXPECT_EQ(BigInt::FromDigits(text).ToString(), text);
    EXPECT_EQ((-BigInt::FromDigits(text)).ToString(), (text == "0" ? "" : "-") + text);
  }
  EXPECT_EQ(BigInt(INT64_MIN).ToString(), "-9223372036854775808");
  EXPECT_EQ(BigInt(INT64_MIN).ToInt64(), INT64_MIN);
  EXPECT_EQ((-BigInt(INT64_MIN)).ToInt64(), std::nullopt);
  EXPECT_EQ(BigInt::PowerOfTen(21).ToString(), "1000000000000000000000");
  EXPECT_EQ(BigInt::PowerOfTen(20).bits(), 67);
}

// Division undoes multiplication, at sizes that cross limbs.
TEST(BigIntTest, DividesWhatItMultiplied) {
  constexpr int kSeed = 20261201;
  std::mt19937_64 random(kSeed);
  const auto number = [&](int limbs) {
    BigInt out;
    for (int i = 0; i < limbs; ++i) out = out * BigInt(int64_t{1} << 32) + BigInt(static_cast<int64_t>(random() >> 32));
    return random() % 2 == 0 ? out : -out;
  };
  for (int i = 0; i < 2000; ++i) {
    const BigInt a = number(static_cast<int>(random() % 7));
    const BigInt b = number(static_cast<int>(random() % 4) + 1);
    if (b.zero()) continue;
    const BigInt::Division division = BigInt::FloorDivide(a, b);
    ASSERT_EQ(division.quotient * b + division.remainder, a) << a.ToString() << " / " << b.ToString();
    ASSERT_LT(division.remainder.Abs(), b.Abs());
    ASSERT_TRUE(division.remainder.zero() || division.remainder.negative() == b.negative());
    const BigInt divisor = BigInt::Gcd(a, b);
    ASSERT_TRUE(BigInt::FloorDivide(a, divisor).remainder.zero());
    ASSERT_TRUE(BigInt::FloorDivide(b, divisor).remainder.zero());
    ASSERT_EQ(BigInt::Gcd(BigInt::FloorDivide(a, divisor).quotient, BigInt::FloorDivide(b, divisor).quotient),
              BigInt(1));
  }
}

TEST(BigIntTest, AgreesWithMachineArithmetic) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 5000; ++i) {
    const int64_t a = static_cast<int64_t>(random() >> (random() % 33 + 31)) * (random() % 2 == 0 ? 1 : -1);
    const int64_t b = static_cast<int64_t>(random() >> (random() % 33 + 31)) * (random() % 2 == 0 ? 1 : -1);
    ASSERT_EQ((BigInt(a) + BigInt(b)).ToInt64(), a + b);
    ASSERT_EQ((BigInt(a) - BigInt(b)).ToInt64(), a - b);
    ASSERT_EQ(BigInt::Compare(a, b), a < b ? -1 : a > b ? 1 : 0);
    if (b != 0) {
      const int64_t floor = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
      ASSERT_EQ(BigInt::FloorDivide(a, b).quotient.ToInt64(), floor) << a << " / " << b;
      ASSERT_EQ((BigInt(floor) * BigInt(b)).ToInt64(), floor * b);
    }
  }
}

TEST(RationalTest, ReadsDecimals) {  // known-bugs 81
  const std::vector<std::pair<const char*, const char*>> cases = {{"0.5", "0.5"},
                                                                  {".5", "0.5"},
                                                                  {"5e-1", "0.5"},
                                                                  {"1e-4", "0.0001"},
                                                                  {"5.", "5"},
                                                                  {"+1.50", "1.5"},
                                                                  {"-3", "-3"},
                                                                  {"012", "12"},
                                                                  {"1E+2", "100"},
                                                                  {"0.0", "0"},
                                                                  {"-0.0", "0"},
                                                                  {"1e2", "100"},
                                                                  {"0.1234567890123456789", "0.1234567890123456789"},
                                                                  {"100e-3", "0.1"}};
  for (const auto& [text, want] : cases) EXPECT_EQ(R(text).ToString(), want) << text;
}

TEST(RationalTest, RefusesWhatIsNoDecimal) {
  for (const char* text : {"", ".", "-", "e5", "1e", "1e+", "0x1F", "1_000", "1:30", "0,5", "half", "1.2.3", " 1", "1 ",
                           ".inf", "nan", "1e201", "--1"}) {
    EXPECT_EQ(Rational::Parse(text), std::nullopt) << text;
  }
  EXPECT_EQ(Rational::Parse(std::string(101, '1')), std::nullopt);
}

TEST(RationalTest, IsExact) {  // known-bugs 82
  EXPECT_EQ(*Rational::Add(R("0.2"), R("0.7")), R("0.9"));
  EXPECT_EQ(Rational::Subtract(R("1"), R("0.9"))->ToString(), "0.1");
  EXPECT_EQ(Rational::Multiply(R("1.1"), R("1.1"))->ToString(), "1.21");
  const Rational third = *Rational::Divide(1, 3);
  EXPECT_FALSE(third.IsDecimal());
  EXPECT_EQ(third.ToString(), "0.333333333333");
  EXPECT_EQ(*Rational::Multiply(third, 3), Rational(1));
  EXPECT_EQ(Rational::Divide(2, 3)->ToString(), "0.666666666667");
  EXPECT_EQ(Rational::Power(R("1.5"), -2)->ToString(), "0.444444444444");
  EXPECT_EQ(Rational::Power(R("2"), 10)->ToString(), "1024");
}

TEST(RationalTest, Rounds) {
  const auto round = [](const char* text) { return R(text).RoundHalfEven().ToString(); };
  EXPECT_EQ(round("0.5"), "0");
  EXPECT_EQ(round("1.5"), "2");
  EXPECT_EQ(round("2.5"), "2");
  EXPECT_EQ(round("2.500001"), "3");
  EXPECT_EQ(round("-0.5"), "0");
  EXPECT_EQ(round("-1.5"), "-2");
  EXPECT_EQ(R("-1.2").Floor().ToString(), "-2");
  EXPECT_EQ(R("-1.2").Ceil().ToString(), "-1");
  EXPECT_EQ(R("0.0000000000005").Round(12).ToString(), "0");
  EXPECT_EQ(R("0.0000000000015").Round(12).ToString(), "0.000000000002");
}

TEST(RationalTest, StopsBeforeNumbersGrowWithoutEnd) {
  EXPECT_EQ(Rational::Power(R("10"), 400), std::nullopt);
  EXPECT_EQ(Rational::Power(R("10"), 4'000'000'000), std::nullopt);
  EXPECT_EQ(Rational::Power(1, 4'000'000'000), Rational(1));
  EXPECT_EQ(Rational::Power(-1, 4'000'000'001), Rational(-1));
  EXPECT_EQ(Rational::Multiply(R("1e200"), R("1e200")), std::nullopt);
}

}  // namespace
}  // namespace espalier
