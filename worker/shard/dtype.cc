#include "worker/shard/dtype.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace espalier {
namespace {

constexpr absl::string_view kPrefix = "DTYPE_";

}  // namespace

int64_t DtypeSize(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_BOOL:
    case v1::DTYPE_U8:
    case v1::DTYPE_I8:
    case v1::DTYPE_F8_E5M2:
    case v1::DTYPE_F8_E4M3:
    case v1::DTYPE_F8_E8M0:
      return 1;
    case v1::DTYPE_I16:
    case v1::DTYPE_U16:
    case v1::DTYPE_F16:
    case v1::DTYPE_BF16:
      return 2;
    case v1::DTYPE_I32:
    case v1::DTYPE_U32:
    case v1::DTYPE_F32:
      return 4;
    case v1::DTYPE_C64:
    case v1::DTYPE_F64:
    case v1::DTYPE_I64:
    case v1::DTYPE_U64:
      return 8;
    default:
      return 0;
  }
}

std::string DtypeName(v1::Dtype dtype) {
  return std::string(absl::StripPrefix(v1::Dtype_Name(dtype), kPrefix));
}

v1::Dtype ParseDtype(absl::string_view name) {
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  v1::Dtype_Parse(absl::StrCat(kPrefix, name), &dtype);
  return dtype;
}

bool IsPrunableDtype(v1::Dtype dtype) {
  return dtype == v1::DTYPE_F64 || dtype == v1::DTYPE_F32 || dtype == v1::DTYPE_F16 || dtype == v1::DTYPE_BF16;
}

bool IsFloatDtype(v1::Dtype dtype) {
  return IsPrunableDtype(dtype) || dtype == v1::DTYPE_F8_E5M2 || dtype == v1::DTYPE_F8_E4M3 ||
         dtype == v1::DTYPE_F8_E8M0;
}

}  // namespace espalier
