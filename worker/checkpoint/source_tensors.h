#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/index_file.h"
#include "worker/checkpoint/input_file.h"
#include "worker/checkpoint/safetensors_header.h"
#include "worker/checkpoint/tensor_pieces.h"

namespace espalier {

// The weight files of a checkpoint: what was found to be the model, open.
struct WeightFiles {
  std::string directory;
  bool single = false;  // one file was named, not a directory
  std::optional<CheckpointIndex> index;
  std::vector<std::string> names;  // inside the directory, sorted
  std::vector<std::shared_ptr<const InputFile>> files;
  std::vector<SafetensorsHeader> headers;
};

struct SourceTensors {
  std::vector<SourceTensor> tensors;
  // Of pieces (DCP) whose files do not say how many they are: a missing last one can only be told by the tensors' shapes.
  bool open_ended = false;
  std::vector<std::string> notes;
};

// What the files hold together. CHECKPOINT_INVALID: several files without an index that are no shards of DCP; an index that
// says something else than the files; pieces that do not make up their tensors (dcp.h), or of which two that should be
// the same are not - those alone are compared byte by byte.
absl::StatusOr<SourceTensors> TensorsOf(const WeightFiles& weights);

}  // namespace espalier
