#include <unistd.h>

#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/progress.h"
#include "client/cli/report_output.h"
#include "client/cli/terminal.h"
#include "proto/support/clock.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/inspect.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string path;
  bool json = false;
};

absl::StatusOr<int> Inspect(const Options& options) {
  const absl::Duration start = SystemClock().Monotonic();
  ESPALIER_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.path));
  for (const std::string& note : checkpoint.description().notes()) std::cerr << "note: " << note << "\n";
  SparsityReport report;
  {
    const Terminal terminal = DetectTerminal(STDERR_FILENO);
    Progress progress(std::cerr, terminal, [] { return SystemClock().Monotonic(); });
    const auto step = [&](int64_t done, int64_t total) {
      // A pipe gets the result alone.
      if (terminal.interactive) progress.Step("inspect", done, total, "bytes");
    };
    ESPALIER_ASSIGN_OR_RETURN(InspectResult result, InspectFiles(checkpoint, step));
    progress.End(true);
    report.parameters = std::move(result.rows);
    report.summary = std::move(result.summary);
  }
  report.provenance.set_mode(v1::REPORT_MODE_FILES);
  report.provenance.set_world_size(1);
  report.provenance.set_elapsed_seconds(absl::ToDoubleSeconds(SystemClock().Monotonic() - start));
  report.provenance.set_path(checkpoint.path());
  report.provenance.set_time(absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone()));
  report.provenance.set_version(ESPALIER_VERSION);
  std::cout << (options.json ? ReportJson(report) : ReportText(report));
  return kExitOk;
}

}  // namespace

void AddInspect(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("inspect", "Report the sparsity of a checkpoint on disk, without any server");
  const auto options = std::make_shared<Options>();
  command->add_option("path", options->path, "Checkpoint: a directory, or a safetensors file")
      ->required()
      ->type_name("PATH");
  command->add_flag("--json", options->json, "Print the report as JSON");
  command->footer("Example:\n  espalier inspect pruned --json | jq .params_summary.prunable_sparsity_percent");
  command->callback([options, &invocation] { invocation.body = [options] { return Inspect(*options); }; });
}

}  // namespace espalier::cli
