#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/model.pb.h"
#include "worker/checkpoint/safetensors_header.h"

namespace espalier {

// The folder of ours in a checkpoint, and what lies in it.
inline constexpr char kEspalierFolder[] = "espalier";
inline constexpr char kManifestName[] = "espalier/espalier.json";
inline constexpr char kMaskFileName[] = "espalier/masks.safetensors";
inline constexpr char kMaskFormat[] = "espalier.masks.v1";

// The tensors of a mask file, `masked` being sorted by name, and its metadata.
std::vector<TensorEntry> MaskTensors(const std::vector<const v1::Parameter*>& masked);
std::map<std::string, std::string> MaskMetadata(const std::vector<const v1::Parameter*>& masked);

// Checks the header of a mask file against the parameters of the model it lies with, sorted by name; answers the offset
// of each parameter's packed mask. CHECKPOINT_INVALID, naming `file` and tensor: another format, a shape that is not the
// parameter's, a mask without a parameter (let pass, and left out, when `partial`: the file holds the masks of a larger
// model).
absl::StatusOr<std::map<std::string, int64_t, std::less<>>> ParseMaskHeader(const SafetensorsHeader& header,
                                                                            const v1::ModelDescription& model,
                                                                            bool partial, absl::string_view file);

}  // namespace espalier
