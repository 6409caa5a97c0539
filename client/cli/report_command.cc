#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/report_output.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  std::string run;
  std::string mode;
  bool json = false;
};

absl::StatusOr<int> Report(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string name, RunNameOf(options.run));
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  const v1::ReportMode mode = options.mode == "gather"         ? v1::REPORT_MODE_GATHER
                              : options.mode == "shard-counts" ? v1::REPORT_MODE_SHARD_COUNTS
                                                               : v1::REPORT_MODE_UNSPECIFIED;
  ESPALIER_ASSIGN_OR_RETURN(const SparsityReport report, client->ComputeSparsityReport(name, mode));
  std::cout << (options.json ? ReportJson(report) : ReportText(report));
  return kExitOk;
}

}  // namespace

void AddReport(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("report", "Count the zeros of a run's live model");
  const auto options = std::make_shared<Options>();
  command->add_option("run", options->run, "Run: runs/ID, or ID")->required()->type_name("RUN");
  command
      ->add_option("--mode", options->mode,
                   "shard-counts: each rank counts its shards; gather: each full parameter is assembled and counted. "
                   "Without a mode an ended run answers with its last report")
      ->check(CLI::IsMember({"shard-counts", "gather"}))
      ->type_name("MODE");
  command->add_flag("--json", options->json, "Print the report as JSON");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer("Example:\n  espalier report runs/7f3a --mode gather --json > report.json");
  command->callback([options, &invocation] { invocation.body = [options] { return Report(*options); }; });
}

}  // namespace espalier::cli
