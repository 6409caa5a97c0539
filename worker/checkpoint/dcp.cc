#include "worker/checkpoint/dcp.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/strict_json.h"

namespace espalier {
namespace {

using Json = nlohmann::json;
constexpr char kOffsets[] = "saved_offsets";
constexpr char kLogicalName[] = "logical_fqn";

// "00012", at least five digits as the writer pads them.
bool TakeNumber(absl::string_view& text, int& out) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  if (digits < 5 || !absl::SimpleAtoi(text.substr(0, digits), &out) || out < 1) return false;
  text.remove_prefix(digits);
  return true;
}

absl::StatusOr<DcpShard> ParseShard(const TensorEntry& tensor, const Json& info, absl::string_view file) {
  const auto invalid = [&](absl::string_view what) {
    return CheckpointInvalid(file, tensor.name, absl::StrCat("of ", kDcpShardingInfo, " ", what));
  };
  if (!info.is_object()) return invalid("is not an object");
  DcpShard shard;
  shard.name = tensor.name;
  if (const auto name = info.find(kLogicalName); name != info.end()) {
    if (!name->is_string()) return invalid("has a \"logical_fqn\" that is not a name");
    shard.name = name->get<std::string>();
  }
  const auto offsets = info.find(kOffsets);
  if (offsets == info.end() || !offsets->is_array()) return invalid("has no list \"saved_offsets\"");
  if (offsets->size() != tensor.shape.size()) {
    return invalid(
        absl::StrCat("has ", offsets->size(), " saved_offsets; the piece has ", tensor.shape.size(), " dimensions"));
  }
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    const Json& offset = (*offsets)[d];
    if (!offset.is_number_unsigned()) return invalid("has saved_offsets that are not whole numbers from 0");
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const auto value = offset.get<uint64_t>();
    if (value > kMost - static_cast<uint64_t>(tensor.shape[d])) {
      return invalid(absl::StrCat("begins at ", value, ", which is more than any tensor has"));
    }
    shard.origin.push_back(static_cast<int64_t>(value));
  }
  return shard;
}

}  // namespace

std::string MakeDcpFileName(const DcpFileName& name) {
  return absl::StrFormat("shard-%05d-model-%05d-of-%05d.safetensors", name.shard, name.part, name.parts);
}

std::optional<DcpFileName> ParseDcpFileName(absl::string_view name) {
  DcpFileName out;
  if (absl::ConsumePrefix(&name, "shard-") && TakeNumber(name, out.shard) && absl::ConsumePrefix(&name, "-model-") &&
      TakeNumber(name, out.part) && absl::ConsumePrefix(&name, "-of-") && TakeNumber(name, out.parts) &&
      name == ".safetensors" && out.part <= out.parts) {
    return out;
  }
  return std::nullopt;
}

std::map<std::string, std::string> DcpMetadata(absl::Span<const TensorEntry> tensors,
                                               absl::Span<const std::vector<int64_t>> origins, size_t weight_files,
                                               const std::string& format) {
  Json info = Json::object();
  for (size_t i = 0; i < tensors.size(); ++i) info[tensors[i].name] = {{kOffsets, origins[i]}};
  return {{kDcpShardingInfo, info.dump()},
          {kDcpVersionKey, kDcpVersion},
          {kWeightFilesKey, absl::StrCat(weight_files)},
          {"format", format}};
}

absl::StatusOr<std::vector<DcpShard>> ParseDcpShards(const SafetensorsHeader& header, absl::string_view file) {
  const auto text = header.metadata.find(kDcpShardingInfo);
  if (text == header.metadata.end()) {
    return CheckpointInvalid(file, "",
                             absl::StrCat("has no ", kDcpShardingInfo,
                                          " while files beside it hold shards of tensors: what is the model is not "
                                          "clear, remove what does not belong to it"));
  }
  const auto version = header.metadata.find(kDcpVersionKey);
  if (version != header.metadata.end() && version->second != kDcpVersion) {
    return CheckpointInvalid(file, "",
                             absl::StrCat("is of ", kDcpVersionKey, " \"", version->second.substr(0, 40), "\"; only \"",
                                          kDcpVersion, "\" is read"));
  }
  ESPALIER_ASSIGN_OR_RETURN(const Json info, ParseStrictJson(text->second, absl::StrCat(file, ": ", kDcpShardingInfo)));
  std::vector<DcpShard> shards;
  for (const TensorEntry& tensor : header.tensors) {
    const auto found = info.find(tensor.name);
    if (found == info.end()) {
      return CheckpointInvalid(file, tensor.name, absl::StrCat("is not in ", kDcpShardingInfo));
    }
    ESPALIER_ASSIGN_OR_RETURN(DcpShard shard, ParseShard(tensor, *found, file));
    shards.push_back(std::move(shard));
  }
  // Names of a header are unique, so more entries than tensors are of others.
  if (info.size() != header.tensors.size()) {
    return CheckpointInvalid(
        file, "",
        absl::StrCat(kDcpShardingInfo, " has ", info.size(), " entries, the file ", header.tensors.size(), " tensors"));
  }
  return shards;
}

}  // namespace espalier
