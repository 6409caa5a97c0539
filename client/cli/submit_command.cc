#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/json.h"
#include "client/cli/run_view.h"
#include "client/cli/spec_options.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  SpecOptions spec;
  std::string coordinator;
  bool validate_only = false;
  bool no_queue = false;
  bool wait = false;
  bool json = false;
};

absl::StatusOr<int> Submit(const Options& options) {
  v1::CreateRunRequest request;
  ESPALIER_ASSIGN_OR_RETURN(*request.mutable_spec(), MakeSpec(options.spec));
  request.set_validate_only(options.validate_only);
  request.set_wait_for_workers(!options.no_queue);
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  ESPALIER_ASSIGN_OR_RETURN(v1::Run run, client->CreateRun(std::move(request)));
  if (options.wait && !options.validate_only) {
    if (!options.json) std::cout << run.name() << std::endl;
    ESPALIER_ASSIGN_OR_RETURN(run, FollowRun(*client, run.name(), Until::kHeld));
  }
  if (options.json) {
    std::cout << Pretty(ToJson(run));
  } else if (options.validate_only) {
    std::cout << "valid: would prune " << run.plan().pruned_parameters() << " of " << run.plan().model_parameters()
              << " parameters in " << run.updates_total() << " updates\n";
  } else if (!options.wait) {
    std::cout << run.name() << "\n";
  }
  if (options.wait && !options.validate_only && !IsHeld(run)) ESPALIER_RETURN_IF_ERROR(OutcomeOf(run));
  return kExitOk;
}

}  // namespace

void AddSubmit(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("submit", "Make a run at a coordinator and print its name");
  const auto options = std::make_shared<Options>();
  AddSpecOptions(*command, options->spec, /*output_required=*/false);
  AddCoordinatorOption(*command, options->coordinator);
  command->add_flag("--validate-only", options->validate_only, "Check everything and make nothing");
  command->add_flag("--no-queue", options->no_queue, "Refuse where too few workers are idle now, instead of queueing");
  command->add_flag("--wait", options->wait,
                    "Show progress until the run has ended or is held, and exit by its outcome");
  command->add_flag("--json", options->json, "Print the run as JSON");
  command->footer(
      "Paths are those of the workers' machines.\n\nExample:\n"
      "  espalier submit recipe.yaml --model /models/llama --output /models/llama-50 --workers 4 --wait");
  command->callback([options, &invocation] { invocation.body = [options] { return Submit(*options); }; });
}

}  // namespace espalier::cli
