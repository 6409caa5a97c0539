#include "worker/checkpoint/layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/support/crc32.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/dcp.h"
#include "worker/checkpoint/mask_file.h"
#include "worker/checkpoint/safetensors_header.h"
#include "worker/shard/dtype.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

using Parameters = std::vector<const v1::Parameter*>;

// The elements of a parameter that one file holds, whole rows of it.
struct Part {
  const v1::Parameter* parameter = nullptr;
  ShardRange range;
  std::vector<int64_t> shape;
  std::vector<int64_t> origin;

  int64_t bytes() const { return range.size() * DtypeSize(parameter->dtype()); }
};
using Parts = std::vector<Part>;

std::vector<int64_t> ShapeOf(const v1::Parameter& parameter) {
  return {parameter.shape().begin(), parameter.shape().end()};
}

Part Whole(const v1::Parameter& parameter) {
  return {&parameter, {0, NumElements(parameter.shape())}, ShapeOf(parameter), {}};
}

// The rows of one rank; nothing where it has none. A parameter without elements is rank 0's.
std::optional<Part> RowsOf(const v1::Parameter& parameter, int rank, int ranks) {
  Part part = Whole(parameter);
  part.origin.resize(part.shape.size());
  if (part.range.empty()) return rank == 0 ? std::optional(part) : std::nullopt;
  part.range = RowShard(part.shape, rank, ranks);
  if (part.range.empty()) return std::nullopt;
  if (!part.shape.empty()) {
    const int64_t row = RowElements(part.shape);
    part.origin[0] = part.range.begin / row;
    part.shape[0] = part.range.size() / row;
  }
  return part;
}

// At most what one tensor takes in a header: each byte of a name can become six - twelve where it is once more in a text -,
// each number has 20 digits.
int64_t HeaderBytesBound(const v1::Parameter& parameter, bool dcp) {
  const auto name = static_cast<int64_t>(parameter.name().size());
  const int64_t entry = 6 * name + 21 * (parameter.shape_size() + 2) + 64;
  return dcp ? entry + 12 * name + 21 * parameter.shape_size() + 64 : entry;
}

std::vector<Parameters> Split(const Parameters& parameters, const LayoutOptions& options) {
  const bool dcp = options.dcp_ranks > 0;
  std::vector<Parameters> out(1);
  int64_t bytes = 0;
  int64_t header = 0;
  bool closed = false;  // by a tensor that stands alone
  for (const v1::Parameter* parameter : parameters) {
    const int64_t size = (dcp ? *RowsOf(*parameter, 0, options.dcp_ranks) : Whole(*parameter)).bytes();
    const int64_t entry = HeaderBytesBound(*parameter, dcp);
    const bool full = bytes + size > options.max_shard_bytes || header + entry > kMaxHeaderBytes - 4096;
    if (!out.back().empty() && (closed || full)) {
      out.emplace_back();
      bytes = header = 0;
    }
    out.back().push_back(parameter);
    bytes += size;
    header += entry;
    closed = size > options.max_shard_bytes;
  }
  // Tensors of wide elements first.
  for (Parameters& file : out) {
    std::stable_sort(file.begin(), file.end(), [](const v1::Parameter* a, const v1::Parameter* b) {
      return DtypeSize(a->dtype()) > DtypeSize(b->dtype());
    });
  }
  return out;
}

std::vector<TensorEntry> EntriesOf(const Parts& parts) {
  std::vector<TensorEntry> entries;
  for (const Part& part : parts) {
    entries.push_back({.name = part.parameter->name(), .dtype = part.parameter->dtype(), .shape = part.shape});
  }
  return entries;
}

absl::StatusOr<PlannedFile> PlanFile(std::string name, const std::map<std::string, std::string>& metadata,
                                     const Parts& parts, std::vector<TensorEntry> entries) {
  PlannedFile file;
  file.name = std::move(name);
  ESPALIER_ASSIGN_OR_RETURN(file.header, MakeSafetensorsHeader(metadata, absl::MakeSpan(entries)));
  for (size_t i = 0; i < entries.size(); ++i) {
    file.tensors.push_back({parts[i].parameter, entries[i].begin, parts[i].range});
  }
  file.size = entries.empty() ? static_cast<int64_t>(file.header.size()) : entries.back().end;
  return file;
}

absl::Status AddWholeFiles(const std::vector<Parameters>& split, const LayoutOptions& options, SaveLayout& layout) {
  CheckpointIndex index;
  index.total_size = 0;
  for (size_t i = 0; i < split.size(); ++i) {
    const std::string name = split.size() == 1 ? "model.safetensors"
                                               : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, split.size());
    Parts parts;
    for (const v1::Parameter* parameter : split[i]) {
      index.weight_map[parameter->name()] = name;
      *index.total_size += parts.emplace_back(Whole(*parameter)).bytes();
    }
    ESPALIER_ASSIGN_OR_RETURN(PlannedFile file, PlanFile(name, {{"format", options.format}}, parts, EntriesOf(parts)));
    layout.weights.push_back(std::move(file));
  }
  if (split.size() > 1) layout.index = MakeIndex(index);
  return absl::OkStatus();
}

absl::Status AddDcpFiles(const std::vector<Parameters>& split, const LayoutOptions& options, SaveLayout& layout) {
  // The files say how many they are, so all of them come first.
  std::vector<std::pair<std::string, Parts>> files;
  for (int rank = 0; rank < options.dcp_ranks; ++rank) {
    for (size_t i = 0; i < split.size(); ++i) {
      Parts parts;
      for (const v1::Parameter* parameter : split[i]) {
        if (std::optional<Part> part = RowsOf(*parameter, rank, options.dcp_ranks)) parts.push_back(*std::move(part));
      }
      // As the writer of PyTorch does; a model without any tensor has one file all the same.
      if (parts.empty() && (rank > 0 || !split[i].empty())) continue;
      files.emplace_back(MakeDcpFileName({rank + 1, static_cast<int>(i) + 1, static_cast<int>(split.size())}),
                         std::move(parts));
    }
  }
  for (const auto& [name, parts] : files) {
    std::vector<TensorEntry> entries = EntriesOf(parts);
    std::vector<std::vector<int64_t>> origins;
    for (const Part& part : parts) origins.push_back(part.origin);
    const auto metadata = DcpMetadata(entries, origins, files.size(), options.format);
    ESPALIER_ASSIGN_OR_RETURN(PlannedFile file, PlanFile(name, metadata, parts, std::move(entries)));
    layout.weights.push_back(std::move(file));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SaveLayout> MakeLayout(const Parameters& parameters, const Parameters& masked,
                                      const LayoutOptions& options) {
  SaveLayout layout;
  const std::vector<Parameters> split = Split(parameters, options);
  ESPALIER_RETURN_IF_ERROR(options.dcp_ranks > 0 ? AddDcpFiles(split, options, layout)
                                                 : AddWholeFiles(split, options, layout));
  for (const PlannedFile& file : layout.weights) layout.total_bytes += file.size;
  layout.total_bytes += static_cast<int64_t>(layout.index.size());
  if (!masked.empty()) {
    Parts parts;
    for (const v1::Parameter* parameter : masked) parts.push_back(Whole(*parameter));
    ESPALIER_ASSIGN_OR_RETURN(layout.masks, PlanFile(kMaskFileName, MaskMetadata(masked), parts, MaskTensors(masked)));
    layout.total_bytes += layout.masks->size;
  }
  return layout;
}

uint32_t LayoutFingerprint(const SaveLayout& layout) {
  uint32_t crc = Crc32(0, layout.index.data(), layout.index.size());
  const auto add = [&](const PlannedFile& file) {
    crc = Crc32(crc, file.name.data(), file.name.size());
    crc = Crc32(crc, file.header.data(), file.header.size());
  };
  for (const PlannedFile& file : layout.weights) add(file);
  if (layout.masks) add(*layout.masks);
  return crc;
}

}  // namespace espalier
