#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/json.h"
#include "client/cli/run_view.h"
#include "client/cli/text.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  std::string run;
  int64_t from = 0;
  bool json = false;
};

absl::StatusOr<int> Watch(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string name, RunNameOf(options.run));
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  v1::Run run;
  if (options.json) {
    ESPALIER_RETURN_IF_ERROR(client->WatchRun(name, options.from, [](const v1::RunEvent& event) {
      std::cout << OneLine(ToJson(event)) << std::flush;
      return static_cast<bool>(std::cout);
    }));
    ESPALIER_ASSIGN_OR_RETURN(run, client->GetRun(name));
  } else {
    ESPALIER_ASSIGN_OR_RETURN(run, FollowRun(*client, name, Until::kEnded));
  }
  ESPALIER_RETURN_IF_ERROR(OutcomeOf(run));
  if (!options.json) {
    std::cout << run.name() << " " << StateName(run.state()) << ": "
              << Percent(run.sparsity().prunable_sparse(), run.sparsity().prunable())
              << " of prunable elements are zero"
              << (run.output_path().empty() ? "" : absl::StrCat(", saved ", run.output_path())) << "\n";
  }
  return kExitOk;
}

}  // namespace

void AddWatch(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("watch", "Show a run's progress until it ends, and exit by its outcome");
  const auto options = std::make_shared<Options>();
  command->add_option("run", options->run, "Run: runs/ID, or ID")->required()->type_name("RUN");
  command->add_flag("--json", options->json, "Print every event as a line of JSON");
  command->add_option("--from", options->from, "With --json: events after this revision, instead of a snapshot first")
      ->check(CLI::NonNegativeNumber.description(""))
      ->type_name("REVISION");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer("Example:\n  espalier watch runs/7f3a --json | jq .message");
  command->callback([options, &invocation] { invocation.body = [options] { return Watch(*options); }; });
}

}  // namespace espalier::cli
