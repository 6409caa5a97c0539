#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/v1/model.pb.h"
#include "worker/checkpoint/index_file.h"

namespace espalier {

// A safetensors file before it is written.
struct PlannedFile {
  struct Tensor {
    const v1::Parameter* parameter = nullptr;  // the one that it holds, or whose mask it is
    int64_t offset = 0;                        // of its first byte in the file
  };
  std::string name;    // inside the output directory
  std::string header;  // the first bytes
  int64_t size = 0;
  std::vector<Tensor> tensors;  // in the order of their bytes
};

// What an output directory will hold, the same for every world size.
struct SaveLayout {
  std::vector<PlannedFile> weights;
  std::optional<PlannedFile> masks;  // without masks there is no file of them
  std::string index;                 // text of model.safetensors.index.json; empty with one weight file
  int64_t total_bytes = 0;           // of all files above
};

// Parameters, sorted by name, fill one file after another up to `max_shard_bytes` of tensors and the longest header that
// readers accept; one that is larger stands alone. Inside a file tensors of wide elements come first, so that each
// begins at a multiple of its element's size. One file is named model.safetensors, several
// model-00001-of-00002.safetensors and so on. `masked`: those that have a mask, sorted by name. Pointers are kept.
// LIMIT_EXCEEDED when the masks need a longer header than readers accept.
absl::StatusOr<SaveLayout> MakeLayout(const std::vector<const v1::Parameter*>& parameters,
                                      const std::vector<const v1::Parameter*>& masked, int64_t max_shard_bytes,
                                      const std::string& format);

// CRC-32 of everything in the layout: what all ranks must have alike.
uint32_t LayoutFingerprint(const SaveLayout& layout);

}  // namespace espalier
