#include "worker/mask/mask_rows.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

// The packed form and the words of a mask are the same bytes where no row ends inside of one.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

int64_t RowBytes(int64_t row) {
  return row / 8 + (row % 8 != 0 ? 1 : 0);
}

// Bits from `offset` on, `count` at most 8.
uint8_t ReadBits(const Bitmask& mask, int64_t offset, int64_t count) {
  const auto words = mask.words();
  const size_t word = static_cast<size_t>(offset >> 6);
  const int shift = static_cast<int>(offset & 63);
  uint64_t bits = words[word] >> shift;
  if (shift + count > 64) bits |= words[word + 1] << (64 - shift);
  return static_cast<uint8_t>(bits & ((1U << count) - 1));
}

// Sets the bits of `value` from `offset` on; they are clear.
void WriteBits(Bitmask& mask, int64_t offset, int64_t count, uint8_t value) {
  const auto words = mask.words();
  const size_t word = static_cast<size_t>(offset >> 6);
  const int shift = static_cast<int>(offset & 63);
  words[word] |= uint64_t{value} << shift;
  if (shift + count > 64) words[word + 1] |= uint64_t{value} >> (64 - shift);
}

absl::Status Invalid(const std::string& what) {
  return MakeError(v1::ERROR_REASON_CHECKPOINT_INVALID, absl::StrCat("packed mask: ", what), {{"what", what}});
}

}  // namespace

std::array<int64_t, 2> PackedShape(absl::Span<const int64_t> shape) {
  return {shape.empty() ? 1 : shape[0], RowBytes(RowElements(shape))};
}

std::vector<uint8_t> PackRows(absl::Span<const int64_t> shape, ShardRange range, const Bitmask& mask) {
  const int64_t row = RowElements(shape);
  const int64_t rows = row == 0 ? 0 : range.size() / row;
  std::vector<uint8_t> packed(static_cast<size_t>(rows * RowBytes(row)));
  if (row % 8 == 0) {
    if (!packed.empty()) std::memcpy(packed.data(), mask.words().data(), packed.size());
    return packed;
  }
  auto out = packed.begin();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < row; i += 8) *out++ = ReadBits(mask, r * row + i, std::min<int64_t>(8, row - i));
  }
  return packed;
}

absl::StatusOr<Bitmask> UnpackRows(absl::Span<const int64_t> shape, ShardRange range,
                                   absl::Span<const uint8_t> packed) {
  const int64_t row = RowElements(shape);
  const int64_t rows = row == 0 ? 0 : range.size() / row;
  const int64_t want = rows * RowBytes(row);
  if (static_cast<int64_t>(packed.size()) != want) {
    return Invalid(absl::StrCat(packed.size(), " bytes where ", rows, " rows of ", row, " elements take ", want));
  }
  Bitmask mask(range.size(), /*keep=*/false);
  if (row % 8 == 0) {
    if (!packed.empty()) std::memcpy(mask.words().data(), packed.data(), packed.size());
    return mask;
  }
  auto in = packed.begin();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < row; i += 8) {
      const int64_t count = std::min<int64_t>(8, row - i);
      const uint8_t value = *in++;
      if (value >> count != 0) return Invalid(absl::StrCat("padding bits of row ", r, " are set"));
      WriteBits(mask, r * row + i, count, value);
    }
  }
  return mask;
}

}  // namespace espalier
