#include "client/cli/npy.h"

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier::cli {

absl::StatusOr<NpyType> NpyTypeOf(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_BOOL:
      return NpyType{"|b1", 1, ""};
    case v1::DTYPE_U8:
      return NpyType{"|u1", 1, ""};
    case v1::DTYPE_I8:
      return NpyType{"|i1", 1, ""};
    case v1::DTYPE_F8_E5M2:
    case v1::DTYPE_F8_E4M3:
    case v1::DTYPE_F8_E8M0:
      return NpyType{"|u1", 1, "8-bit floats are stored as their bytes (uint8)"};
    case v1::DTYPE_I16:
      return NpyType{"<i2", 2, ""};
    case v1::DTYPE_U16:
      return NpyType{"<u2", 2, ""};
    case v1::DTYPE_F16:
      return NpyType{"<f2", 2, ""};
    case v1::DTYPE_BF16:
      return NpyType{"<u2", 2,
                     "bfloat16 is stored as its 16 bits (uint16): (a.astype('u4') << 16).view('f4') gives the values, "
                     "--float32 writes them so"};
    case v1::DTYPE_I32:
      return NpyType{"<i4", 4, ""};
    case v1::DTYPE_U32:
      return NpyType{"<u4", 4, ""};
    case v1::DTYPE_F32:
      return NpyType{"<f4", 4, ""};
    case v1::DTYPE_C64:
      return NpyType{"<c8", 8, ""};
    case v1::DTYPE_F64:
      return NpyType{"<f8", 8, ""};
    case v1::DTYPE_I64:
      return NpyType{"<i8", 8, ""};
    case v1::DTYPE_U64:
      return NpyType{"<u8", 8, ""};
    default:
      return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                       absl::StrCat("dtype ", static_cast<int>(dtype), " is unknown to this build; update it"),
                       {{"field", "dtype"}});
  }
}

std::string NpyHeader(absl::string_view descr, absl::Span<const int64_t> shape) {
  std::string tuple;
  for (const int64_t size : shape) absl::StrAppend(&tuple, size, ", ");
  // (5,) keeps its comma, (5, 3) and () have none at the end.
  if (shape.size() == 1) {
    tuple.pop_back();
  } else if (!tuple.empty()) {
    tuple.resize(tuple.size() - 2);
  }
  std::string dict = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", tuple, "), }");
  constexpr size_t kPreamble = 10;
  const size_t total = (kPreamble + dict.size() + 1 + 63) / 64 * 64;
  dict.append(total - kPreamble - dict.size() - 1, ' ');
  dict += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(dict.size() & 0xFF);
  out += static_cast<char>(dict.size() >> 8);
  return out + dict;
}

std::string WidenBf16(absl::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    out.append(2, '\0');
    out.append(bytes.data() + i, 2);
  }
  return out;
}

}  // namespace espalier::cli
