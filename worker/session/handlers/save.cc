#include "worker/checkpoint/save.h"

#include "proto/support/checks.h"
#include "proto/support/fault_point.h"
#include "proto/support/status_macros.h"
#include "worker/session/handlers/handlers.h"
#include "worker/session/handlers/pages.h"

namespace espalier {

absl::Status SaveShards(WorkerState& state, const CommandContext& context, CommandResult& result) {
  ESPALIER_ASSIGN_OR_RETURN(Collective * group, state.ModelOf(context.command, context.Left()));
  const v1::SaveShards& op = context.command.save_shards();
  SaveRequest request;
  request.path = op.path();
  request.overwrite = op.overwrite();
  request.token = op.token();
  request.max_shard_bytes = op.max_shard_bytes();
  request.format = op.format();
  request.command_id = context.command.command_id();
  request.deadline = context.deadline;
  request.recount = ChecksOn();
  request.progress = [&, hit = false](int64_t done, int64_t total) mutable {
    if (!hit) FaultHit("in_save", group->rank());
    hit = true;
    context.progress("save", done, total, "bytes");
  };
  v1::SaveShardsResult& out = *result.ack.mutable_save_shards();
  ESPALIER_ASSIGN_OR_RETURN(out, state.saver->SaveShards(request, *state.source, *state.shards, state.masks, *group));
  MoveChecksumsToPages(out, result.pages);
  return absl::OkStatus();
}

absl::Status PublishCheckpoint(WorkerState& state, const CommandContext& context, CommandResult& result) {
  ESPALIER_RETURN_IF_ERROR(state.ModelOf(context.command, context.Left()).status());
  ESPALIER_ASSIGN_OR_RETURN(*result.ack.mutable_publish_checkpoint(),
                            state.saver->Publish(context.command.publish_checkpoint(), context.deadline));
  return absl::OkStatus();
}

absl::Status DiscardCheckpoint(WorkerState& state, const CommandContext& context, CommandResult&) {
  const v1::DiscardCheckpoint& op = context.command.discard_checkpoint();
  state.saver->Discard(op.path(), op.token());
  return absl::OkStatus();
}

}  // namespace espalier
