#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "worker/session/handlers/handlers.h"

namespace espalier {
namespace {

absl::Status Dispatch(WorkerState& state, const CommandContext& context, CommandResult& result) {
  switch (context.command.op_case()) {
    case v1::Command::kOpenRendezvous:
      return OpenRendezvous(state, context, result);
    case v1::Command::kJoinGroup:
      return JoinGroup(state, context, result);
    case v1::Command::kLoadModel:
      return LoadModel(state, context, result);
    case v1::Command::kCountUpdate:
      return CountUpdate(state, context, result);
    case v1::Command::kUpdateMasks:
      return UpdateMasks(state, context, result);
    case v1::Command::kReportSparsity:
      return ReportSparsity(state, context, result);
    case v1::Command::kGatherParameter:
      return GatherParameter(state, context, result);
    case v1::Command::kSaveShards:
      return SaveShards(state, context, result);
    case v1::Command::kPublishCheckpoint:
      return PublishCheckpoint(state, context, result);
    case v1::Command::kDiscardCheckpoint:
      return DiscardCheckpoint(state, context, result);
    case v1::Command::kLeaveGroup:
      return LeaveGroup(state, context, result);
    case v1::Command::kInspectModel:
    case v1::Command::OP_NOT_SET:
      break;
  }
  return MakeError(v1::ERROR_REASON_INVARIANT,
                   absl::StrCat("command ", context.command.command_id(), " carries no op that this build knows"),
                   {{"what", "op"}, {"where", "worker"}});
}

// After these, ranks may hold different things, or cannot reach each other.
bool IsBreaking(const absl::Status& status) {
  switch (ReasonOf(status)) {
    case v1::ERROR_REASON_COLLECTIVE_TIMEOUT:
    case v1::ERROR_REASON_WORKER_LOST:
    case v1::ERROR_REASON_STATE_DIVERGED:
    case v1::ERROR_REASON_MASK_NOT_EFFECTIVE:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status ExecuteCommand(WorkerState& state, const CommandContext& context, CommandResult& result) {
  absl::Status status = Dispatch(state, context, result);
  if (IsBreaking(status)) state.Break(status);
  return status;
}

}  // namespace espalier
