#include "worker/checkpoint/load.h"

#include <map>
#include <string>
#include <utility>

#include "proto/support/status_macros.h"
#include "worker/mask/digest.h"
#include "worker/session/handlers/handlers.h"

namespace espalier {

absl::Status LoadModel(WorkerState& state, const CommandContext& context, CommandResult& result) {
  ESPALIER_ASSIGN_OR_RETURN(Collective * group, state.GroupOf(context.command, context.Left()));
  const v1::LoadModel& op = context.command.load_model();
  CheckpointOptions options;
  options.ignore_stored_masks = op.ignore_stored_masks();
  options.roots = state.services().roots;
  ESPALIER_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(op.path(), options));
  ESPALIER_ASSIGN_OR_RETURN(
      ShardTable shards, LoadShards(checkpoint, group->rank(), group->world_size(), [&](int64_t done, int64_t total) {
        context.progress("load", done, total, "bytes");
      }));
  ESPALIER_ASSIGN_OR_RETURN(MaskTable masks, LoadStoredMasks(checkpoint, shards));
  std::map<std::string, uint64_t> digests;
  for (const auto& [name, mask] : masks) {
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(name));
    digests[name] = MaskDigest(name, *mask.bits, shard.range);
  }
  state.Load(std::move(checkpoint), std::move(shards), std::move(masks), std::move(digests));
  result.ack.mutable_load_model()->set_shard_bytes(state.shards->total_bytes());
  result.ack.mutable_load_model()->set_mask_digest(state.MasksDigest());
  return absl::OkStatus();
}

}  // namespace espalier
