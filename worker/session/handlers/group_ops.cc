#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/status_macros.h"
#include "worker/collective/single_process.h"
#include "worker/session/handlers/handlers.h"
#ifdef ESPALIER_FAULTS
#include "worker/session/corrupting_collective.h"
#endif

namespace espalier {

absl::Status OpenRendezvous(WorkerState& state, const CommandContext&, CommandResult& result) {
  ESPALIER_ASSIGN_OR_RETURN(*result.ack.mutable_open_rendezvous()->mutable_address(),
                            state.services().groups->OpenStore());
  return absl::OkStatus();
}

absl::Status JoinGroup(WorkerState& state, const CommandContext& context, CommandResult&) {
  const v1::JoinGroup& op = context.command.join_group();
  if (op.world_size() < 1 || op.rank() < 0 || op.rank() >= op.world_size()) {
    return MakeError(v1::ERROR_REASON_INVARIANT,
                     absl::StrCat("JoinGroup: rank ", op.rank(), " of ", op.world_size(), " does not exist"),
                     {{"what", "rank"}, {"where", "JoinGroup"}});
  }
  std::shared_ptr<Collective> collective;
  if (op.world_size() == 1) {
    collective = std::make_shared<SingleProcess>();
  } else {
    state.services().holding->SetForming(true);
    absl::StatusOr<std::shared_ptr<Collective>> joined = state.services().groups->Join(
        {op.rank(), op.world_size(), context.command.generation(), op.store_address(), context.Left()});
    state.services().holding->SetForming(false);
    if (!joined.ok()) {
      state.services().groups->CloseStore();
      return joined.status();
    }
    collective = *std::move(joined);
  }
#ifdef ESPALIER_FAULTS
  collective = CorruptGathers(std::move(collective));
#endif
  LogInfo("joined", {{"run", context.command.run()},
                     {"generation", absl::StrCat(context.command.generation())},
                     {"rank", absl::StrCat(op.rank())},
                     {"world_size", absl::StrCat(op.world_size())}});
  state.Join(context.command.run(), context.command.generation(), std::move(collective));
  return absl::OkStatus();
}

absl::Status LeaveGroup(WorkerState& state, const CommandContext& context, CommandResult&) {
  const v1::Command& command = context.command;
  const bool held = state.run == command.run() && state.generation <= command.generation();
  if (held) LogInfo("left", {{"run", state.run}, {"generation", absl::StrCat(state.generation)}});
  // An idle worker may still have a store open at which nobody met.
  if (held || state.run.empty()) state.Leave();
  return absl::OkStatus();
}

}  // namespace espalier
