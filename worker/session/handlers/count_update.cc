#include "proto/support/status_macros.h"
#include "worker/select/select.h"
#include "worker/session/handlers/handlers.h"
#include "worker/session/handlers/pages.h"
#include "worker/session/handlers/update_inputs.h"

namespace espalier {

absl::Status CountUpdate(WorkerState& state, const CommandContext& context, CommandResult& result) {
  ESPALIER_RETURN_IF_ERROR(state.ModelOf(context.command, context.Left()).status());
  const v1::UpdateSpec& spec = context.command.count_update().spec();
  ESPALIER_ASSIGN_OR_RETURN(const UpdateInputs update, UpdateInputs::LookUp(spec, *state.shards, state.masks));
  UpdateCounts counts;
  ESPALIER_ASSIGN_OR_RETURN(counts.counts, CountForUpdate(spec, update.inputs()));
  AppendCountPages(counts, result.pages);
  return absl::OkStatus();
}

}  // namespace espalier
