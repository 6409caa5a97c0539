#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace espalier {

// Integer of any size: sign and magnitude. What recipes compute with, so that no result is ever rounded by the machine.
// Callers bound the sizes (Rational::kMaxBits); every operation is schoolbook arithmetic.
class BigInt {
 public:
  BigInt() = default;
  BigInt(int64_t value);  // NOLINT(google-explicit-constructor): integers are integers

  // `digits` are decimal digits alone. REQUIRES: at least one.
  static BigInt FromDigits(absl::string_view digits);
  // 10 to the power of `exponent`. REQUIRES: exponent >= 0.
  static BigInt PowerOfTen(int exponent);

  bool zero() const { return limbs_.empty(); }
  bool negative() const { return negative_; }
  bool odd() const { return !limbs_.empty() && (limbs_[0] & 1) != 0; }
  // Bits of the magnitude; 0 for zero.
  int bits() const;
  // nullopt when it does not fit.
  std::optional<int64_t> ToInt64() const;
  std::string ToString() const;

  BigInt Abs() const;
  BigInt operator-() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b);
  friend BigInt operator*(const BigInt& a, const BigInt& b);

  // Quotient rounded toward minus infinity, and the remainder, which has the sign of the divisor.
  struct Division;
  // REQUIRES: divisor is not zero.
  static Division FloorDivide(const BigInt& dividend, const BigInt& divisor);
  // Never negative; Gcd(0, 0) = 0.
  static BigInt Gcd(BigInt a, BigInt b);

  // -1, 0, 1.
  static int Compare(const BigInt& a, const BigInt& b);
  friend bool operator==(const BigInt& a, const BigInt& b) { return Compare(a, b) == 0; }
  friend bool operator<(const BigInt& a, const BigInt& b) { return Compare(a, b) < 0; }

 private:
  using Limbs = std::vector<uint32_t>;

  static int CompareMagnitudes(const Limbs& a, const Limbs& b);
  static Limbs AddMagnitudes(const Limbs& a, const Limbs& b);
  // a -= b. REQUIRES: a >= b.
  static void SubtractMagnitude(Limbs& a, const Limbs& b);
  static Limbs ShiftRight(const Limbs& a, int bits);
  // Divides `a` in place by a single limb; returns the remainder.
  static uint32_t DivideByLimb(Limbs& a, uint32_t divisor);
  static void Trim(Limbs& limbs);
  static BigInt Make(Limbs limbs, bool negative);

  Limbs limbs_;  // least significant first, no leading zeros; empty for zero
  bool negative_ = false;
};

struct BigInt::Division {
  BigInt quotient;
  BigInt remainder;
};

}  // namespace espalier
