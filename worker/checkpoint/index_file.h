#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier {

inline constexpr char kIndexName[] = "model.safetensors.index.json";
inline constexpr int64_t kMaxIndexBytes = 100'000'000;

// model.safetensors.index.json: which file of the directory holds which tensor.
struct CheckpointIndex {
  std::map<std::string, std::string> weight_map;  // tensor name as in the file -> file name
  std::optional<int64_t> total_size;              // metadata.total_size, where it is a whole number
};

// CHECKPOINT_INVALID, naming `file`: not JSON, a key twice, no weight_map, an entry that is no string, or a file name that
// is not a plain name of a .safetensors file in the directory.
absl::StatusOr<CheckpointIndex> ParseIndex(absl::string_view text, absl::string_view file);

// The text of an index, with tensors sorted bytewise.
std::string MakeIndex(const CheckpointIndex& index);

}  // namespace espalier
