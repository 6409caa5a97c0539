#include "worker/checkpoint/mask_file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/strict_json.h"
#include "worker/mask/mask_rows.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

std::vector<int64_t> ShapeOf(const v1::Parameter& parameter) {
  return {parameter.shape().begin(), parameter.shape().end()};
}

const v1::Parameter* Find(const v1::ModelDescription& model, const std::string& name) {
  const auto it = std::lower_bound(model.parameters().begin(), model.parameters().end(), name,
                                   [](const v1::Parameter& p, const std::string& n) { return p.name() < n; });
  return it != model.parameters().end() && it->name() == name ? &*it : nullptr;
}

}  // namespace

std::vector<TensorEntry> MaskTensors(const std::vector<const v1::Parameter*>& masked) {
  std::vector<TensorEntry> out;
  for (const v1::Parameter* parameter : masked) {
    const std::array<int64_t, 2> shape = PackedShape(parameter->shape());
    out.push_back({.name = parameter->name(), .dtype = v1::DTYPE_U8, .shape = {shape[0], shape[1]}});
  }
  return out;
}

std::map<std::string, std::string> MaskMetadata(const std::vector<const v1::Parameter*>& masked) {
  nlohmann::json shapes = nlohmann::json::object();
  for (const v1::Parameter* parameter : masked) shapes[parameter->name()] = ShapeOf(*parameter);
  return {{"format", kMaskFormat}, {"shapes", shapes.dump()}};
}

absl::StatusOr<std::map<std::string, int64_t, std::less<>>> ParseMaskHeader(const SafetensorsHeader& header,
                                                                            const v1::ModelDescription& model,
                                                                            bool partial, absl::string_view file) {
  const auto format = header.metadata.find("format");
  if (format == header.metadata.end() || format->second != kMaskFormat) {
    return CheckpointInvalid(file, "", absl::StrCat("__metadata__ does not say format: ", kMaskFormat));
  }
  const auto text = header.metadata.find("shapes");
  if (text == header.metadata.end()) return CheckpointInvalid(file, "", "__metadata__ has no shapes");
  ESPALIER_ASSIGN_OR_RETURN(const nlohmann::json shapes, ParseStrictJson(text->second, absl::StrCat(file, ": shapes")));
  if (shapes.size() != header.tensors.size()) {
    return CheckpointInvalid(
        file, "",
        absl::StrCat("has ", header.tensors.size(), " masks and the shapes of ", shapes.size(), " parameters"));
  }
  std::map<std::string, int64_t, std::less<>> offsets;
  for (const TensorEntry& tensor : header.tensors) {
    const v1::Parameter* parameter = Find(model, tensor.name);
    if (parameter == nullptr) {
      if (partial) continue;
      return CheckpointInvalid(file, tensor.name, "is the mask of a parameter that the weight files do not have");
    }
    if (!IsPrunableDtype(parameter->dtype())) {
      return CheckpointInvalid(
          file, tensor.name,
          absl::StrCat("is the mask of a parameter of dtype ", DtypeName(parameter->dtype()), ", which has no masks"));
    }
    const std::vector<int64_t> shape = ShapeOf(*parameter);
    const auto stored = shapes.find(tensor.name);
    if (stored == shapes.end() || *stored != nlohmann::json(shape)) {
      return CheckpointInvalid(file, tensor.name,
                               absl::StrCat("is the mask of a parameter of another shape than [",
                                            absl::StrJoin(shape, ", "), "], which the weight files have"));
    }
    const std::array<int64_t, 2> packed = PackedShape(shape);
    if (tensor.dtype != v1::DTYPE_U8 || tensor.shape != std::vector<int64_t>{packed[0], packed[1]}) {
      return CheckpointInvalid(file, tensor.name,
                               absl::StrCat("must be U8 of shape [", packed[0], ", ", packed[1],
                                            "] for a parameter of shape [", absl::StrJoin(shape, ", "), "]"));
    }
    offsets.emplace(tensor.name, tensor.begin);
  }
  return offsets;
}

}  // namespace espalier
