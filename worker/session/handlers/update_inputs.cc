#include "worker/session/handlers/update_inputs.h"

#include <utility>

#include "proto/support/status_macros.h"

namespace espalier {

absl::StatusOr<UpdateInputs> UpdateInputs::LookUp(const v1::UpdateSpec& spec, const ShardTable& shards,
                                                  const MaskTable& masks) {
  UpdateInputs out;
  for (const std::string& name : spec.parameters()) {
    ESPALIER_ASSIGN_OR_RETURN(Shard shard, shards.Lookup(name));
    const auto mask = masks.find(shard.parameter->name());
    SelectInput input;
    input.parameter = shard.parameter;
    input.range = shard.range;
    input.values = shard.storage->bytes();
    if (mask != masks.end()) {
      input.current = mask->second.bits.get();
      out.masks_.push_back(mask->second.bits);
    }
    out.inputs_.push_back(input);
    out.shards_.push_back(std::move(shard));
  }
  return out;
}

}  // namespace espalier
