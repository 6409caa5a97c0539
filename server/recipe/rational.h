#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/recipe/big_int.h"

namespace espalier {

// An exact fraction in lowest terms; the only kind of number in a recipe. 0.2 + 0.7 is 0.9.
//
// Sizes are bounded: an operation whose result would need more than kMaxBits bits above or below the line returns
// nullopt, and the caller says which expression it was.
class Rational {
 public:
  static constexpr int kMaxBits = 1024;
  // Decimal places of scheduled sparsities and of fractions that have no finite decimal.
  static constexpr int kPlaces = 12;

  Rational() : denominator_(1) {}
  Rational(int64_t value) : numerator_(value), denominator_(1) {}  // NOLINT(google-explicit-constructor)
  // REQUIRES: denominator is not zero.
  static std::optional<Rational> Of(BigInt numerator, BigInt denominator);

  // Reads [+-]digits[.digits][e[+-]digits], a digit on either side of the dot; nullopt for anything else, and for more
  // than 100 characters or an exponent beyond +-200.
  static std::optional<Rational> Parse(absl::string_view text);

  const BigInt& numerator() const { return numerator_; }
  const BigInt& denominator() const { return denominator_; }
  bool whole() const { return denominator_ == BigInt(1); }
  bool zero() const { return numerator_.zero(); }
  // -1, 0, 1.
  int sign() const { return numerator_.zero() ? 0 : numerator_.negative() ? -1 : 1; }

  Rational Abs() const;
  Rational operator-() const;
  static std::optional<Rational> Add(const Rational& a, const Rational& b);
  static std::optional<Rational> Subtract(const Rational& a, const Rational& b);
  static std::optional<Rational> Multiply(const Rational& a, const Rational& b);
  // REQUIRES: b is not zero.
  static std::optional<Rational> Divide(const Rational& a, const Rational& b);
  // REQUIRES: exponent >= 0 or base is not zero.
  static std::optional<Rational> Power(const Rational& base, int64_t exponent);

  BigInt Floor() const;
  BigInt Ceil() const;
  // To the nearest whole number, halves to even.
  BigInt RoundHalfEven() const;
  // To `places` decimal places, halves to even. REQUIRES: 0 <= places.
  Rational Round(int places) const;

  // Has a finite decimal expansion.
  bool IsDecimal() const;
  // The exact decimal ("0.9", "-3", "1250"), where there is none rounded to kPlaces.
  std::string ToString() const;

  static int Compare(const Rational& a, const Rational& b);
  friend bool operator==(const Rational& a, const Rational& b) { return Compare(a, b) == 0; }
  friend bool operator<(const Rational& a, const Rational& b) { return Compare(a, b) < 0; }
  friend bool operator>(const Rational& a, const Rational& b) { return Compare(a, b) > 0; }
  friend bool operator<=(const Rational& a, const Rational& b) { return Compare(a, b) <= 0; }
  friend bool operator>=(const Rational& a, const Rational& b) { return Compare(a, b) >= 0; }

 private:
  BigInt numerator_;
  BigInt denominator_;  // positive
};

}  // namespace espalier
