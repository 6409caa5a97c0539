#pragma once

// The header of a safetensors file: 8 bytes with the length N of the JSON (little-endian), N bytes of JSON, then the data
// of all tensors without gaps. https://huggingface.co/docs/safetensors/index#format

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "espalier/v1/model.pb.h"

namespace espalier {

// Longest JSON that is read or written; the reference implementation has the same limit.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

struct TensorEntry {
  std::string name;  // as in the file, not canonical
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  // Bytes of the file, absolute: end - begin = elements x DtypeSize.
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // in the order of their bytes
  std::map<std::string, std::string> metadata;  // __metadata__
  int64_t data_begin = 0;
};

// Length of the JSON from the first 8 bytes of a file. CHECKPOINT_INVALID when the file is shorter than that, or the
// length is over the cap or the file: decided before anything is allocated.
absl::StatusOr<int64_t> ParseHeaderLength(absl::string_view first_bytes, int64_t file_size, absl::string_view file);

// Parses and validates everything that can be said without reading data. `bytes` are at least the first 8 + N bytes of
// the file, `file` is its name for errors. Refused, naming file, tensor and what: bad UTF-8 or JSON, a key twice, unknown
// fields or dtypes, negative or overflowing shapes, shape x size that is not the range, ranges that overlap, leave gaps
// or do not end at the end of the file. Tensors without elements, and of rank 0, are fine.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view bytes, int64_t file_size,
                                                         absl::string_view file);

// Lays `tensors` out one after another in the given order: sets begin and end (absolute) of each and returns the first
// bytes of the file, padded with spaces so that data starts on a multiple of 8. LIMIT_EXCEEDED when the JSON would be
// longer than readers accept.
absl::StatusOr<std::string> MakeSafetensorsHeader(const std::map<std::string, std::string>& metadata,
                                                  absl::Span<TensorEntry> tensors);

}  // namespace espalier
