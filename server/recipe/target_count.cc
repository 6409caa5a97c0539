#include "server/recipe/target_count.h"

#include <optional>

namespace espalier {
namespace {

// GCC and clang both have it; -Wpedantic, which would object, is not on.
__extension__ using Int128 = __int128;

}  // namespace

int64_t TargetCount(const Rational& sparsity, int64_t n, v1::SelectionRule rule) {
  const bool truncate = rule == v1::SELECTION_RULE_SPARSEML;
  const std::optional<int64_t> numerator = sparsity.numerator().ToInt64();
  const std::optional<int64_t> denominator = sparsity.denominator().ToInt64();
  if (numerator && denominator) {
    // The product of two int64 fits into 128 bits.
    const Int128 product = static_cast<Int128>(*numerator) * n;
    const Int128 floor = product / *denominator;
    const Int128 remainder = product % *denominator;
    const bool up = remainder > *denominator - remainder || (remainder == *denominator - remainder && floor % 2 == 1);
    return static_cast<int64_t>(truncate || !up ? floor : floor + 1);
  }
  const BigInt::Division division = BigInt::FloorDivide(sparsity.numerator() * n, sparsity.denominator());
  const int half = BigInt::Compare(division.remainder * 2, sparsity.denominator());
  const bool up = half > 0 || (half == 0 && division.quotient.odd());
  return division.quotient.ToInt64().value_or(n) + (truncate || !up ? 0 : 1);
}

}  // namespace espalier
