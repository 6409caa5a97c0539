#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/v1/model.pb.h"
#include "worker/checkpoint/index_file.h"
#include "worker/shard/shard_range.h"

namespace espalier {

// A safetensors file before it is written.
struct PlannedFile {
  struct Tensor {
    const v1::Parameter* parameter = nullptr;  // the one that it holds, or whose mask it is
    int64_t offset = 0;                        // of its first byte in the file
    ShardRange range;                          // elements of the parameter that it holds
  };
  std::string name;    // inside the output directory
  std::string header;  // the first bytes
  int64_t size = 0;
  std::vector<Tensor> tensors;  // in the order of their bytes
};

// What an output directory will hold; the same for every world size, unless it is laid out for one.
struct SaveLayout {
  std::vector<PlannedFile> weights;
  std::optional<PlannedFile> masks;  // without masks there is no file of them
  std::string index;                 // text of model.safetensors.index.json; empty without one
  int64_t total_bytes = 0;           // of all files above
};

struct LayoutOptions {
  int64_t max_shard_bytes = 0;
  std::string format = "pt";  // `format` in the metadata
  // Above 0: the sharded files of DCP (dcp.h) for as many ranks.
  int dcp_ranks = 0;
};

// Parameters, sorted by name, fill one file after another up to `max_shard_bytes` of tensors and the longest header that
// readers accept; one that is larger stands alone. Inside a file tensors of wide elements come first, so that each
// begins at a multiple of its element's size. One file is named model.safetensors, several
// model-00001-of-00002.safetensors and so on, with an index. For DCP every rank has such a series of files with its rows
// (RowShard) of the parameters, split so that those of rank 0, who has most, keep to the limit; a file without tensors is
// left out, and there is no index. `masked`: those that have a mask, sorted by name; their file is the same for all.
// Pointers are kept. LIMIT_EXCEEDED when the masks need a longer header than readers accept.
absl::StatusOr<SaveLayout> MakeLayout(const std::vector<const v1::Parameter*>& parameters,
                                      const std::vector<const v1::Parameter*>& masked, const LayoutOptions& options);

// CRC-32 of everything in the layout: what all ranks must have alike.
uint32_t LayoutFingerprint(const SaveLayout& layout);

}  // namespace espalier
