#include "server/recipe/rational.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace espalier {
namespace {

constexpr size_t kMaxLiteral = 100;
constexpr int kMaxExponent = 200;

// The run of digits at the front of `text`, removed from it.
absl::string_view TakeDigits(absl::string_view& text) {
  size_t count = 0;
  while (count < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[count]))) ++count;
  const absl::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

bool TakeSign(absl::string_view& text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  return negative;
}

// How often `factor` divides `value`, which is divided by it as often.
int TakeFactor(BigInt& value, int factor) {
  for (int count = 0;; ++count) {
    const BigInt::Division division = BigInt::FloorDivide(value, factor);
    if (!division.remainder.zero()) return count;
    value = division.quotient;
  }
}

}  // namespace

std::optional<Rational> Rational::Of(BigInt numerator, BigInt denominator) {
  const BigInt divisor = BigInt::Gcd(numerator, denominator);
  Rational out;
  out.numerator_ = BigInt::FloorDivide(numerator, divisor).quotient;
  out.denominator_ = BigInt::FloorDivide(denominator, divisor).quotient;
  if (out.denominator_.negative()) {
    out.numerator_ = -out.numerator_;
    out.denominator_ = -out.denominator_;
  }
  if (out.numerator_.bits() > kMaxBits || out.denominator_.bits() > kMaxBits) return std::nullopt;
  return out;
}

std::optional<Rational> Rational::Parse(absl::string_view text) {
  if (text.size() > kMaxLiteral) return std::nullopt;
  const bool negative = TakeSign(text);
  const absl::string_view whole = TakeDigits(text);
  absl::string_view fraction;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    fraction = TakeDigits(text);
  }
  if (whole.empty() && fraction.empty()) return std::nullopt;
  int exponent = 0;
  if (!text.empty() && (text[0] == 'e' || text[0] == 'E')) {
    text.remove_prefix(1);
    const bool down = TakeSign(text);
    const absl::string_view digits = TakeDigits(text);
    if (digits.empty() || !absl::SimpleAtoi(digits, &exponent) || exponent > kMaxExponent) return std::nullopt;
    if (down) exponent = -exponent;
  }
  if (!text.empty()) return std::nullopt;
  exponent -= static_cast<int>(fraction.size());
  BigInt numerator = BigInt::FromDigits(absl::StrCat(whole, fraction));
  if (negative) numerator = -numerator;
  const BigInt scale = BigInt::PowerOfTen(std::abs(exponent));
  return exponent >= 0 ? Of(numerator * scale, 1) : Of(numerator, scale);
}

Rational Rational::Abs() const {
  Rational out = *this;
  out.numerator_ = numerator_.Abs();
  return out;
}

Rational Rational::operator-() const {
  Rational out = *this;
  out.numerator_ = -numerator_;
  return out;
}

std::optional<Rational> Rational::Add(const Rational& a, const Rational& b) {
  return Of(a.numerator_ * b.denominator_ + b.numerator_ * a.denominator_, a.denominator_ * b.denominator_);
}

std::optional<Rational> Rational::Subtract(const Rational& a, const Rational& b) {
  return Add(a, -b);
}

std::optional<Rational> Rational::Multiply(const Rational& a, const Rational& b) {
  return Of(a.numerator_ * b.numerator_, a.denominator_ * b.denominator_);
}

std::optional<Rational> Rational::Divide(const Rational& a, const Rational& b) {
  return Of(a.numerator_ * b.denominator_, a.denominator_ * b.numerator_);
}

std::optional<Rational> Rational::Power(const Rational& base, int64_t exponent) {
  if (exponent == 0) return Rational(1);
  if (base.zero() || base == Rational(1)) return base;
  if (base == Rational(-1)) return exponent % 2 == 0 ? -base : base;
  if (exponent > kMaxBits || exponent < -kMaxBits) return std::nullopt;
  Rational factor = base;
  if (exponent < 0) {
    const auto inverse = Divide(1, base);
    if (!inverse) return std::nullopt;
    factor = *inverse;
    exponent = -exponent;
  }
  Rational out(1);
  for (;;) {
    if (exponent % 2 == 1) {
      const auto product = Multiply(out, factor);
      if (!product) return std::nullopt;
      out = *product;
    }
    exponent /= 2;
    if (exponent == 0) return out;
    const auto square = Multiply(factor, factor);
    if (!square) return std::nullopt;
    factor = *square;
  }
}

BigInt Rational::Floor() const {
  return BigInt::FloorDivide(numerator_, denominator_).quotient;
}

BigInt Rational::Ceil() const {
  return -(-*this).Floor();
}

BigInt Rational::RoundHalfEven() const {
  const BigInt::Division division = BigInt::FloorDivide(numerator_, denominator_);
  const int half = BigInt::Compare(division.remainder * 2, denominator_);
  if (half > 0 || (half == 0 && division.quotient.odd())) return division.quotient + 1;
  return division.quotient;
}

Rational Rational::Round(int places) const {
  const BigInt scale = BigInt::PowerOfTen(places);
  Rational scaled;
  scaled.numerator_ = numerator_ * scale;
  scaled.denominator_ = denominator_;
  // Never larger than the value itself by more than one unit of the last place, so it keeps within the bound.
  return Of(scaled.RoundHalfEven(), scale).value_or(*this);
}

bool Rational::IsDecimal() const {
  BigInt rest = denominator_;
  TakeFactor(rest, 2);
  TakeFactor(rest, 5);
  return rest == BigInt(1);
}

std::string Rational::ToString() const {
  BigInt rest = denominator_;
  int places = TakeFactor(rest, 2);
  places = std::max(places, TakeFactor(rest, 5));
  if (!(rest == BigInt(1))) return Round(kPlaces).ToString();
  // Exact: the denominator divides 10^places.
  const BigInt scaled = BigInt::FloorDivide(numerator_ * BigInt::PowerOfTen(places), denominator_).quotient;
  std::string digits = scaled.Abs().ToString();
  if (places > 0) {
    if (digits.size() <= static_cast<size_t>(places)) digits.insert(0, places + 1 - digits.size(), '0');
    digits.insert(digits.size() - places, ".");
  }
  return scaled.negative() ? absl::StrCat("-", digits) : digits;
}

int Rational::Compare(const Rational& a, const Rational& b) {
  return BigInt::Compare(a.numerator_ * b.denominator_, b.numerator_ * a.denominator_);
}

}  // namespace espalier
