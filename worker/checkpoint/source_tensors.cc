#include "worker/checkpoint/source_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/dcp.h"
#include "worker/shard/dtype.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

constexpr size_t kCompareBytes = size_t{1} << 20;

bool HasShards(const SafetensorsHeader& header) {
  return header.metadata.count(kDcpShardingInfo) > 0;
}

// Each entry of the index is in the file it names, and no tensor of these files is elsewhere or unlisted.
absl::Status CheckIndex(const WeightFiles& weights, SourceTensors& out) {
  const CheckpointIndex& index = *weights.index;
  std::map<std::string, std::string> found;
  int64_t total = 0;
  for (size_t i = 0; i < weights.names.size(); ++i) {
    const std::string& name = weights.names[i];
    const std::string& file = weights.files[i]->name();
    for (const TensorEntry& tensor : weights.headers[i].tensors) {
      total += tensor.end - tensor.begin;
      const auto [it, inserted] = found.emplace(tensor.name, name);
      if (!inserted) return CheckpointInvalid(file, tensor.name, absl::StrCat("is also in ", it->second));
      const auto listed = index.weight_map.find(tensor.name);
      if (listed == index.weight_map.end()) {
        return CheckpointInvalid(file, tensor.name, absl::StrCat("is not listed in ", kIndexName));
      }
      if (listed->second != name) {
        return CheckpointInvalid(file, tensor.name,
                                 absl::StrCat("is listed in ", kIndexName, " as being in ", listed->second));
      }
    }
  }
  for (const auto& [tensor, name] : index.weight_map) {
    if (found.count(tensor) == 0) {
      return CheckpointInvalid(absl::StrCat(weights.directory, "/", name), tensor,
                               absl::StrCat("is listed in ", kIndexName, " and not in the file"));
    }
  }
  if (index.total_size && *index.total_size != total) {
    out.notes.push_back(
        absl::StrCat(kIndexName, " says total_size ", *index.total_size, "; the tensors have ", total, " bytes"));
  }
  return absl::OkStatus();
}

// DCP's writer says where pieces lie also when one rank saved all, whole: then nothing is missing.
absl::Status CheckWhole(const WeightFiles& weights, size_t i) {
  if (!HasShards(weights.headers[i])) return absl::OkStatus();
  const std::string& file = weights.files[i]->name();
  const char* const advice = "give the directory that holds all of them";
  if (weights.single && ParseDcpFileName(weights.names[i])) {
    return CheckpointInvalid(file, "", absl::StrCat("is one of the files of a sharded checkpoint: ", advice));
  }
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<DcpShard> shards, ParseDcpShards(weights.headers[i], file));
  for (size_t t = 0; t < shards.size(); ++t) {
    const std::string& name = weights.headers[i].tensors[t].name;
    const bool whole = std::all_of(shards[t].origin.begin(), shards[t].origin.end(), [](int64_t o) { return o == 0; });
    if (whole && shards[t].name == name) continue;
    return CheckpointInvalid(
        file, name,
        absl::StrCat("is a piece of a tensor (", kDcpShardingInfo, "): ",
                     weights.index ? absl::StrCat(kIndexName, " lists it as if it were whole") : std::string(advice)));
  }
  return absl::OkStatus();
}

absl::Status CompareReplica(const WeightFiles& weights, const SourceTensor& tensor, const DcpModel::Replica& replica) {
  const InputFile& first = *weights.files[replica.first.file];
  const InputFile& second = *weights.files[replica.second.file];
  const auto bytes = static_cast<size_t>(NumElements(replica.first.shape) * DtypeSize(tensor.dtype));
  std::vector<std::byte> a(std::min(bytes, kCompareBytes)), b(a.size());
  for (size_t at = 0; at < bytes; at += kCompareBytes) {
    const size_t size = std::min(bytes - at, kCompareBytes);
    ESPALIER_RETURN_IF_ERROR(
        first.ReadAt(replica.first.offset + static_cast<int64_t>(at), absl::MakeSpan(a).first(size)));
    ESPALIER_RETURN_IF_ERROR(
        second.ReadAt(replica.second.offset + static_cast<int64_t>(at), absl::MakeSpan(b).first(size)));
    if (std::memcmp(a.data(), b.data(), size) == 0) continue;
    return CheckpointInvalid(second.name(), tensor.name,
                             absl::StrCat("has a piece that is also in ", first.name(), ", and not the same there"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SourceTensors> JoinShards(const WeightFiles& weights) {
  std::vector<std::string> files;
  for (const auto& file : weights.files) files.push_back(file->name());
  ESPALIER_ASSIGN_OR_RETURN(DcpModel model, JoinDcpShards(weights.headers, files, weights.directory));
  for (const DcpModel::Replica& replica : model.replicas) {
    ESPALIER_RETURN_IF_ERROR(CompareReplica(weights, model.tensors[replica.tensor], replica));
  }
  return SourceTensors{std::move(model.tensors), !model.complete, std::move(model.notes)};
}

}  // namespace

absl::StatusOr<SourceTensors> TensorsOf(const WeightFiles& weights) {
  const bool shards = std::any_of(weights.headers.begin(), weights.headers.end(), HasShards);
  if (shards && !weights.index && !weights.single) return JoinShards(weights);
  if (!weights.index && weights.names.size() > 1) {
    return CheckpointInvalid(weights.directory, "",
                             absl::StrCat("holds ", weights.names.size(), " .safetensors files and no ", kIndexName,
                                          " that says which are the model: ", JoinLimited(weights.names, ", ")));
  }
  SourceTensors out;
  if (weights.index) ESPALIER_RETURN_IF_ERROR(CheckIndex(weights, out));
  for (size_t i = 0; i < weights.headers.size(); ++i) {
    ESPALIER_RETURN_IF_ERROR(CheckWhole(weights, i));
    for (const TensorEntry& entry : weights.headers[i].tensors) {
      const TensorPiece piece{i, entry.begin, std::vector<int64_t>(entry.shape.size()), entry.shape};
      out.tensors.push_back({entry.name, entry.dtype, entry.shape, {piece}});
    }
  }
  return out;
}

}  // namespace espalier
