#include "worker/report/report.h"

#include <algorithm>

#include "proto/support/status_macros.h"
#include "worker/session/handlers/handlers.h"
#include "worker/session/handlers/pages.h"

namespace espalier {

absl::Status ReportSparsity(WorkerState& state, const CommandContext& context, CommandResult& result) {
  ESPALIER_ASSIGN_OR_RETURN(Collective * group, state.ModelOf(context.command, context.Left()));
  const int64_t sent_before = group->bytes_sent();
  ReportOptions options;
  options.mode = context.command.report_sparsity().mode();
  options.command_id = context.command.command_id();
  options.progress = [&](int64_t done, int64_t total) { context.progress("report", done, total, "parameters"); };
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<v1::ParameterSparsity> rows,
                            ComputeReport(*state.shards, state.masks, *group, options));
  v1::ReportSparsityResult& out = *result.ack.mutable_report_sparsity();
  out.set_mask_version(state.mask_version);
  out.set_bytes_sent(group->bytes_sent() - sent_before);
  if (group->rank() != 0) return absl::OkStatus();
  Paginate(
      rows, result.pages,
      [](v1::ResultPage& page, const v1::ParameterSparsity& row) { *page.mutable_report()->add_parameters() = row; },
      [](const v1::ParameterSparsity& row) { return row.ByteSizeLong() + 8; });
  return absl::OkStatus();
}

}  // namespace espalier
