#include "server/recipe/big_int.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace espalier {
namespace {

constexpr int kLimbBits = 32;
constexpr uint32_t kBillion = 1'000'000'000;  // largest power of ten in a limb
constexpr int kBillionDigits = 9;

}  // namespace

void BigInt::Trim(Limbs& limbs) {
  while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
}

BigInt BigInt::Make(Limbs limbs, bool negative) {
  BigInt out;
  Trim(limbs);
  out.negative_ = negative && !limbs.empty();
  out.limbs_ = std::move(limbs);
  return out;
}

BigInt::BigInt(int64_t value) : negative_(value < 0) {
  uint64_t magnitude = negative_ ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  for (; magnitude != 0; magnitude >>= kLimbBits) limbs_.push_back(static_cast<uint32_t>(magnitude));
}

BigInt BigInt::FromDigits(absl::string_view digits) {
  BigInt out;
  while (!digits.empty()) {
    const absl::string_view chunk = digits.substr(0, kBillionDigits);
    uint32_t value = 0;
    uint32_t scale = 1;
    for (const char digit : chunk) {
      value = value * 10 + static_cast<uint32_t>(digit - '0');
      scale *= 10;
    }
    out = out * BigInt(scale) + BigInt(value);
    digits.remove_prefix(chunk.size());
  }
  return out;
}

BigInt BigInt::PowerOfTen(int exponent) {
  BigInt out(1);
  for (; exponent >= kBillionDigits; exponent -= kBillionDigits) out = out * BigInt(kBillion);
  for (; exponent > 0; --exponent) out = out * BigInt(10);
  return out;
}

int BigInt::bits() const {
  if (limbs_.empty()) return 0;
  return static_cast<int>(limbs_.size()) * kLimbBits - std::countl_zero(limbs_.back());
}

std::optional<int64_t> BigInt::ToInt64() const {
  if (limbs_.size() > 2) return std::nullopt;
  uint64_t magnitude = 0;
  for (size_t i = limbs_.size(); i-- > 0;) magnitude = (magnitude << kLimbBits) | limbs_[i];
  const uint64_t limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + (negative_ ? 1 : 0);
  if (magnitude > limit) return std::nullopt;
  return static_cast<int64_t>(negative_ ? ~magnitude + 1 : magnitude);
}

std::string BigInt::ToString() const {
  if (limbs_.empty()) return "0";
  std::string reversed;
  Limbs rest = limbs_;
  while (!rest.empty()) {
    uint32_t chunk = DivideByLimb(rest, kBillion);
    for (int i = 0; i < kBillionDigits && (chunk != 0 || !rest.empty()); ++i, chunk /= 10) {
      reversed.push_back(static_cast<char>('0' + chunk % 10));
    }
  }
  if (negative_) reversed.push_back('-');
  return {reversed.rbegin(), reversed.rend()};
}

BigInt BigInt::Abs() const {
  return Make(limbs_, false);
}

BigInt BigInt::operator-() const {
  return Make(limbs_, !negative_);
}

int BigInt::CompareMagnitudes(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

int BigInt::Compare(const BigInt& a, const BigInt& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  const int order = CompareMagnitudes(a.limbs_, b.limbs_);
  return a.negative_ ? -order : order;
}

BigInt::Limbs BigInt::AddMagnitudes(const Limbs& a, const Limbs& b) {
  Limbs out(std::max(a.size(), b.size()) + 1);
  uint64_t carry = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    carry += (i < a.size() ? a[i] : 0ULL) + (i < b.size() ? b[i] : 0ULL);
    out[i] = static_cast<uint32_t>(carry);
    carry >>= kLimbBits;
  }
  return out;
}

void BigInt::SubtractMagnitude(Limbs& a, const Limbs& b) {
  uint64_t borrow = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const uint64_t taken = (i < b.size() ? b[i] : 0ULL) + borrow;
    borrow = a[i] < taken ? 1 : 0;
    a[i] = static_cast<uint32_t>(a[i] - taken);
  }
  Trim(a);
}

BigInt::Limbs BigInt::ShiftRight(const Limbs& a, int bits) {
  const auto skipped = static_cast<size_t>(bits / kLimbBits);
  const int shift = bits % kLimbBits;
  Limbs out;
  for (size_t i = skipped; i < a.size(); ++i) {
    const uint64_t pair = (i + 1 < a.size() ? static_cast<uint64_t>(a[i + 1]) << kLimbBits : 0) | a[i];
    out.push_back(static_cast<uint32_t>(pair >> shift));
  }
  Trim(out);
  return out;
}

BigInt operator+(const BigInt& a, const BigInt& b) {
  if (a.negative_ == b.negative_) return BigInt::Make(BigInt::AddMagnitudes(a.limbs_, b.limbs_), a.negative_);
  const bool first = BigInt::CompareMagnitudes(a.limbs_, b.limbs_) >= 0;
  BigInt out = first ? a : b;
  BigInt::SubtractMagnitude(out.limbs_, first ? b.limbs_ : a.limbs_);
  return BigInt::Make(std::move(out.limbs_), out.negative_);
}

BigInt operator-(const BigInt& a, const BigInt& b) {
  return a + -b;
}

BigInt operator*(const BigInt& a, const BigInt& b) {
  BigInt::Limbs out(a.limbs_.size() + b.limbs_.size());
  for (size_t i = 0; i < a.limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < b.limbs_.size(); ++j) {
      carry += out[i + j] + static_cast<uint64_t>(a.limbs_[i]) * b.limbs_[j];
      out[i + j] = static_cast<uint32_t>(carry);
      carry >>= kLimbBits;
    }
    out[i + b.limbs_.size()] = static_cast<uint32_t>(carry);
  }
  return BigInt::Make(std::move(out), a.negative_ != b.negative_);
}

uint32_t BigInt::DivideByLimb(Limbs& a, uint32_t divisor) {
  uint64_t remainder = 0;
  for (size_t i = a.size(); i-- > 0;) {
    remainder = (remainder << kLimbBits) | a[i];
    a[i] = static_cast<uint32_t>(remainder / divisor);
    remainder %= divisor;
  }
  Trim(a);
  return static_cast<uint32_t>(remainder);
}

BigInt::Division BigInt::FloorDivide(const BigInt& dividend, const BigInt& divisor) {
  Limbs quotient;
  Limbs remainder;
  if (divisor.limbs_.size() == 1) {
    quotient = dividend.limbs_;
    if (const uint32_t rest = DivideByLimb(quotient, divisor.limbs_[0]); rest != 0) remainder.push_back(rest);
  } else if (const int surplus = dividend.bits() - divisor.bits(); surplus >= 0) {
    // Long division bit by bit: numbers here have tens of limbs at most, and clarity beats speed.
    remainder = ShiftRight(dividend.limbs_, surplus + 1);
    quotient.assign(dividend.limbs_.size(), 0);
    for (int bit = surplus; bit >= 0; --bit) {
      const auto limb = static_cast<size_t>(bit / kLimbBits);
      const int shift = bit % kLimbBits;
      uint32_t carry = (dividend.limbs_[limb] >> shift) & 1;
      for (uint32_t& digit : remainder) carry = std::exchange(digit, (digit << 1) | carry) >> (kLimbBits - 1);
      if (carry != 0) remainder.push_back(carry);
      if (CompareMagnitudes(remainder, divisor.limbs_) < 0) continue;
      SubtractMagnitude(remainder, divisor.limbs_);
      quotient[limb] |= uint32_t{1} << shift;
    }
  } else {
    remainder = dividend.limbs_;
  }
  const bool opposite = dividend.negative_ != divisor.negative_;
  Division out{Make(std::move(quotient), opposite), Make(std::move(remainder), dividend.negative_)};
  if (opposite && !out.remainder.zero()) {
    out.quotient = out.quotient - BigInt(1);
    out.remainder = out.remainder + divisor;
  }
  return out;
}

BigInt BigInt::Gcd(BigInt a, BigInt b) {
  a = a.Abs();
  b = b.Abs();
  while (!b.zero()) a = std::exchange(b, FloorDivide(a, b).remainder);
  return a;
}

}  // namespace espalier
