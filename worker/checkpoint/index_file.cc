#include "worker/checkpoint/index_file.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/strict_json.h"

namespace espalier {

absl::StatusOr<CheckpointIndex> ParseIndex(absl::string_view text, absl::string_view file) {
  ESPALIER_ASSIGN_OR_RETURN(const nlohmann::json json, ParseStrictJson(text, file));
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) return CheckpointInvalid(file, "", "has no object \"weight_map\"");
  if (map->empty()) return CheckpointInvalid(file, "", "has an empty \"weight_map\"");
  CheckpointIndex index;
  for (const auto& [tensor, value] : map->items()) {
    if (!value.is_string()) return CheckpointInvalid(file, tensor, "is mapped to something that is not a file name");
    const std::string& name = value.get_ref<const std::string&>();
    if (!absl::EndsWith(name, ".safetensors") || absl::StrContains(name, '/') || absl::StrContains(name, '\0')) {
      return CheckpointInvalid(file, tensor,
                               absl::StrCat("is mapped to \"", absl::string_view(name).substr(0, 300),
                                            "\"; only .safetensors files of the same folder are read"));
    }
    index.weight_map.emplace(tensor, name);
  }
  const auto metadata = json.find("metadata");
  if (metadata != json.end() && metadata->is_object()) {
    const auto size = metadata->find("total_size");
    if (size != metadata->end() && size->is_number_unsigned()) index.total_size = size->get<int64_t>();
  }
  return index;
}

std::string MakeIndex(const CheckpointIndex& index) {
  nlohmann::ordered_json json;
  json["metadata"]["total_size"] = index.total_size.value_or(0);
  // std::map sorts bytewise, and so does the library's own map.
  json["weight_map"] = nlohmann::json(index.weight_map);
  return json.dump(2) + "\n";
}

}  // namespace espalier
