#pragma once

// The ops of WorkerService, one function each; what they must do stands at their messages in worker_service.proto. All
// but InspectModel are called by the executor, in the coordinator's order.

#include "absl/status/status.h"
#include "worker/checkpoint/path_roots.h"
#include "worker/session/command_context.h"
#include "worker/session/command_result.h"
#include "worker/session/worker_state.h"

namespace espalier {

// Whatever op the command carries, InspectModel excepted. Marks the generation as broken where the error says that ranks
// may differ.
absl::Status ExecuteCommand(WorkerState& state, const CommandContext& context, CommandResult& result);

absl::Status InspectModel(const PathRoots& roots, const CommandContext& context, CommandResult& result);

absl::Status OpenRendezvous(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status JoinGroup(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status LoadModel(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status CountUpdate(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status UpdateMasks(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status ReportSparsity(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status GatherParameter(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status SaveShards(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status PublishCheckpoint(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status DiscardCheckpoint(WorkerState& state, const CommandContext& context, CommandResult& result);
absl::Status LeaveGroup(WorkerState& state, const CommandContext& context, CommandResult& result);

}  // namespace espalier
