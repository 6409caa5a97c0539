#include "worker/select/magnitude.h"

#include "worker/shard/dtype.h"

namespace espalier {

int64_t Magnitudes::size() const {
  return static_cast<int64_t>(bytes.size()) / DtypeSize(dtype);
}

ImageFormat Magnitudes::format() const {
  if (as_f64) return {63, 0x7ff0'0000'0000'0001};
  switch (dtype) {
    case v1::DTYPE_BF16:
      return {15, 0x7f81};
    case v1::DTYPE_F16:
      return {15, 0x7c01};
    case v1::DTYPE_F32:
      return {31, 0x7f80'0001};
    default:
      return {63, 0x7ff0'0000'0000'0001};
  }
}

}  // namespace espalier
