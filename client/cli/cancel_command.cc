#include <iostream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "client/cli/commands.h"
#include "client/cli/run_view.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  std::string name;
  std::string reason = "cancelled by `espalier cancel`";
};

absl::StatusOr<int> Cancel(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  if (absl::StrContains(options.name, "/operations/")) {
    ESPALIER_ASSIGN_OR_RETURN(const v1::Operation operation, client->CancelOperation(options.name));
    std::cout << operation.name() << " "
              << std::string(absl::StripPrefix(v1::Operation::State_Name(operation.state()), "STATE_")) << "\n";
    return kExitOk;
  }
  ESPALIER_ASSIGN_OR_RETURN(const std::string name, RunNameOf(options.name));
  ESPALIER_ASSIGN_OR_RETURN(const v1::Run run, client->CancelRun(name, options.reason));
  std::cout << run.name() << " " << StateName(run.state()) << "\n";
  return kExitOk;
}

}  // namespace

void AddCancel(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("cancel", "Cancel a run, or a save of it; nothing is saved");
  const auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Run (runs/ID, or ID) or operation (runs/ID/operations/ID)")
      ->required()
      ->type_name("NAME");
  command->add_option("--reason", options->reason, "For the run's error")->type_name("TEXT");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer("Example:\n  espalier cancel runs/7f3a --reason 'wrong recipe'");
  command->callback([options, &invocation] { invocation.body = [options] { return Cancel(*options); }; });
}

}  // namespace espalier::cli
