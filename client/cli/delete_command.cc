#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  std::string run;
};

absl::StatusOr<int> Delete(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string name, RunNameOf(options.run));
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  ESPALIER_RETURN_IF_ERROR(client->DeleteRun(name));
  std::cout << name << " deleted\n";
  return kExitOk;
}

}  // namespace

void AddDelete(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("delete", "Forget a run that has ended; what it saved stays");
  const auto options = std::make_shared<Options>();
  command->add_option("run", options->run, "Run: runs/ID, or ID")->required()->type_name("RUN");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer("Example:\n  espalier delete runs/7f3a");
  command->callback([options, &invocation] { invocation.body = [options] { return Delete(*options); }; });
}

}  // namespace espalier::cli
