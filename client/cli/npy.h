#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "espalier/v1/model.pb.h"

namespace espalier::cli {

// Element type of an .npy file for a dtype, and what a reader must know where numpy has no such type: BF16 is stored as the
// 16 bits of each value ('<u2'), the 8-bit floats as bytes ('|u1').
struct NpyType {
  std::string descr;
  int64_t bytes = 0;
  // Empty where numpy has the type.
  std::string note;
};

// REQUEST_INVALID for DTYPE_UNSPECIFIED and unknown values.
absl::StatusOr<NpyType> NpyTypeOf(v1::Dtype dtype);

// The bytes before the data of an .npy file, version 1.0, C order; a multiple of 64. `shape` may be empty (rank 0).
std::string NpyHeader(absl::string_view descr, absl::Span<const int64_t> shape);

// BF16 values, two bytes each, little-endian, as the F32 values they are: exact.
std::string WidenBf16(absl::string_view bytes);

}  // namespace espalier::cli
