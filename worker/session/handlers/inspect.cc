#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/save.h"
#include "worker/session/handlers/handlers.h"
#include "worker/session/handlers/pages.h"

namespace espalier {

absl::Status InspectModel(const PathRoots& roots, const CommandContext& context, CommandResult& result) {
  const v1::InspectModel& op = context.command.inspect_model();
  // The output first: it costs least.
  if (!op.output_path().empty()) {
    ESPALIER_RETURN_IF_ERROR(CheckOutput(op.output_path(), op.overwrite(), roots, op.path()).status());
  }
  CheckpointOptions options;
  options.ignore_stored_masks = op.ignore_stored_masks();
  options.roots = roots;
  ESPALIER_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(op.path(), options));
  const v1::ModelDescription& description = checkpoint.description();
  v1::ModelDescription& first = *result.pages.emplace_back().mutable_model();
  first.set_architecture(description.architecture());
  first.set_model_type(description.model_type());
  first.set_total_bytes(description.total_bytes());
  *first.mutable_notes() = description.notes();
  Paginate(
      description.parameters(), result.pages,
      [](v1::ResultPage& page, const v1::Parameter& parameter) { *page.mutable_model()->add_parameters() = parameter; },
      [](const v1::Parameter& parameter) { return parameter.ByteSizeLong() + 8; });
  result.ack.mutable_inspect_model()->set_resolved_path(checkpoint.path());
  return absl::OkStatus();
}

}  // namespace espalier
