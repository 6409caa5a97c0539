#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/run_view.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  std::string run;
  bool wait = false;
};

absl::StatusOr<int> Finish(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string name, RunNameOf(options.run));
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  ESPALIER_ASSIGN_OR_RETURN(v1::Run run, client->FinishRun(name));
  if (options.wait) {
    ESPALIER_ASSIGN_OR_RETURN(run, FollowRun(*client, name, Until::kHeldAgain));
    ESPALIER_RETURN_IF_ERROR(OutcomeOf(run));
  }
  std::cout << run.name() << " " << StateName(run.state()) << "\n";
  return kExitOk;
}

}  // namespace

void AddFinish(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("finish", "End a held run: it saves its output and succeeds");
  const auto options = std::make_shared<Options>();
  command->add_option("run", options->run, "Run: runs/ID, or ID")->required()->type_name("RUN");
  command->add_flag("--wait", options->wait, "Show progress until it has ended, and exit by its outcome");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer("Example:\n  espalier finish runs/7f3a --wait");
  command->callback([options, &invocation] { invocation.body = [options] { return Finish(*options); }; });
}

}  // namespace espalier::cli
