#pragma once

// The sharded safetensors of PyTorch DCP's Hugging Face writer: every rank writes its pieces of the tensors into files of
// its own, shard-00001-model-00001-of-00002.safetensors and so on - rank from 1, file, files of each rank -, and the
// metadata of each file says where its pieces lie:
//   DCP_SHARDING_INFO   JSON, {key in the file: {"saved_offsets": [n...], "logical_fqn": name of the tensor}}; without
//                       logical_fqn the key is the name
//   DCP_VERSION         "1.0"
// No file says how large a tensor is: it ends where its last piece ends.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/checkpoint/safetensors_header.h"
#include "worker/checkpoint/tensor_pieces.h"

namespace espalier {

inline constexpr char kDcpShardingInfo[] = "DCP_SHARDING_INFO";
inline constexpr char kDcpVersionKey[] = "DCP_VERSION";
inline constexpr char kDcpVersion[] = "1.0";
// Ours: how many weight files the checkpoint has, without which a missing last one goes unnoticed. Others ignore it.
inline constexpr char kWeightFilesKey[] = "espalier.weight_files";

struct DcpFileName {
  int shard = 1;  // rank + 1
  int part = 1;
  int parts = 1;
};
std::string MakeDcpFileName(const DcpFileName& name);
// Nothing for a name of another form.
std::optional<DcpFileName> ParseDcpFileName(absl::string_view name);

// Where the tensor of a header lies in the tensor that it is a piece of.
struct DcpShard {
  std::string name;
  std::vector<int64_t> origin;
};

// The metadata of a file with these pieces, parallel to `tensors`. `weight_files`: in the whole checkpoint.
std::map<std::string, std::string> DcpMetadata(absl::Span<const TensorEntry> tensors,
                                               absl::Span<const std::vector<int64_t>> origins, size_t weight_files,
                                               const std::string& format);

// Parallel to header.tensors. CHECKPOINT_INVALID, naming file and tensor: no such metadata, another version, not JSON, a
// tensor that it leaves out or has besides, offsets that are no offsets or lead beyond what can be counted.
absl::StatusOr<std::vector<DcpShard>> ParseDcpShards(const SafetensorsHeader& header, absl::string_view file);

struct DcpModel {
  std::vector<SourceTensor> tensors;  // sorted by name
  // Pieces that a second file has once more; its bytes must be those of the first.
  struct Replica {
    size_t tensor = 0;
    TensorPiece first;
    TensorPiece second;
  };
  std::vector<Replica> replicas;
  bool complete = false;  // the files say how many they are
  std::vector<std::string> notes;
};

// Joins the pieces in the files of one folder; `files` are their names, for errors, parallel to `headers`; `directory` is
// named where a file is missing. CHECKPOINT_INVALID, besides what ParseDcpShards refuses: pieces of one tensor of different
// dtypes or ranks, that overlap without being the same, or leave a part of it out; a part of the files that is not there.
absl::StatusOr<DcpModel> JoinDcpShards(absl::Span<const SafetensorsHeader> headers, absl::Span<const std::string> files,
                                       absl::string_view directory);

}  // namespace espalier
