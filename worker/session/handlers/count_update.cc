#include "proto/support/status_macros.h"
#include "worker/select/select.h"
#include "worker/session/handlers/handlers.h"
#include "worker/session/handlers/pages.h"
#include "worker/session/handlers/update_inputs.h"

namespace espalier {

absl::Status CountUpdate(WorkerState& state, const CommandContext& context, CommandResult& result) {
  ESPALIER_ASSIGN_OR_RETURN(Collective * group, state.ModelOf(context.command, context.Left()));
  const v1::UpdateSpec& spec = context.command.count_update().spec();
  ESPALIER_ASSIGN_OR_RETURN(const UpdateInputs update, UpdateInputs::LookUp(spec, *state.shards, state.masks));
  UpdateCounts counts;
  ESPALIER_ASSIGN_OR_RETURN(counts.counts, CountForUpdate(spec, update.inputs(), *group, context.command.command_id()));
  AppendCountPages(counts, result.pages);
  return absl::OkStatus();
}

}  // namespace espalier
