#include "worker/checkpoint/layout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/support/crc32.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/mask_file.h"
#include "worker/checkpoint/safetensors_header.h"
#include "worker/shard/dtype.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

using Parameters = std::vector<const v1::Parameter*>;

int64_t TensorBytes(const v1::Parameter& parameter) {
  return NumElements(parameter.shape()) * DtypeSize(parameter.dtype());
}

// At most what one tensor takes in a header: each byte of a name can become six, each number has 20 digits.
int64_t HeaderBytesBound(const v1::Parameter& parameter) {
  return static_cast<int64_t>(6 * parameter.name().size()) + 21 * (parameter.shape_size() + 2) + 64;
}

std::vector<Parameters> Split(const Parameters& parameters, int64_t max_shard_bytes) {
  std::vector<Parameters> out(1);
  int64_t bytes = 0;
  int64_t header = 0;
  bool closed = false;  // by a tensor that stands alone
  for (const v1::Parameter* parameter : parameters) {
    const int64_t size = TensorBytes(*parameter);
    const int64_t entry = HeaderBytesBound(*parameter);
    const bool full = bytes + size > max_shard_bytes || header + entry > kMaxHeaderBytes - 4096;
    if (!out.back().empty() && (closed || full)) {
      out.emplace_back();
      bytes = header = 0;
    }
    out.back().push_back(parameter);
    bytes += size;
    header += entry;
    closed = size > max_shard_bytes;
  }
  return out;
}

absl::StatusOr<PlannedFile> PlanFile(std::string name, const std::map<std::string, std::string>& metadata,
                                     const Parameters& parameters, std::vector<TensorEntry> entries) {
  PlannedFile file;
  file.name = std::move(name);
  ESPALIER_ASSIGN_OR_RETURN(file.header, MakeSafetensorsHeader(metadata, absl::MakeSpan(entries)));
  for (size_t i = 0; i < entries.size(); ++i) file.tensors.push_back({parameters[i], entries[i].begin});
  file.size = entries.empty() ? static_cast<int64_t>(file.header.size()) : entries.back().end;
  return file;
}

}  // namespace

absl::StatusOr<SaveLayout> MakeLayout(const Parameters& parameters, const Parameters& masked, int64_t max_shard_bytes,
                                      const std::string& format) {
  SaveLayout layout;
  std::vector<Parameters> parts = Split(parameters, max_shard_bytes);
  CheckpointIndex index;
  index.total_size = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::stable_sort(parts[i].begin(), parts[i].end(), [](const v1::Parameter* a, const v1::Parameter* b) {
      return DtypeSize(a->dtype()) > DtypeSize(b->dtype());
    });
    const std::string name = parts.size() == 1 ? "model.safetensors"
                                               : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, parts.size());
    std::vector<TensorEntry> entries;
    for (const v1::Parameter* parameter : parts[i]) {
      entries.push_back({.name = parameter->name(),
                         .dtype = parameter->dtype(),
                         .shape = {parameter->shape().begin(), parameter->shape().end()}});
      index.weight_map[parameter->name()] = name;
      *index.total_size += TensorBytes(*parameter);
    }
    ESPALIER_ASSIGN_OR_RETURN(PlannedFile file, PlanFile(name, {{"format", format}}, parts[i], std::move(entries)));
    layout.total_bytes += file.size;
    layout.weights.push_back(std::move(file));
  }
  if (parts.size() > 1) layout.index = MakeIndex(index);
  layout.total_bytes += static_cast<int64_t>(layout.index.size());
  if (!masked.empty()) {
    ESPALIER_ASSIGN_OR_RETURN(layout.masks, PlanFile(kMaskFileName, MaskMetadata(masked), masked, MaskTensors(masked)));
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
