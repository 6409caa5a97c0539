#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/model.pb.h"

namespace espalier {

// Bytes of one element; 0 for DTYPE_UNSPECIFIED.
int64_t DtypeSize(v1::Dtype dtype);

// "BF16", as in safetensors headers.
std::string DtypeName(v1::Dtype dtype);

// DTYPE_UNSPECIFIED for a name that is not in the table: never guess.
v1::Dtype ParseDtype(absl::string_view name);

// F64, F32, F16 and BF16.
bool IsPrunableDtype(v1::Dtype dtype);

// All floating dtypes, the 8-bit ones too.
bool IsFloatDtype(v1::Dtype dtype);

}  // namespace espalier
