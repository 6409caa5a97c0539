#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/commands.h"
#include "proto/support/errors.h"
#include "proto/support/names.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {

std::unique_ptr<CLI::App> MakeApp(Invocation& invocation) {
  auto app = std::make_unique<CLI::App>("Espalier prunes models by exact masks, on every shard.", "espalier");
  app->set_version_flag("--version", "espalier " ESPALIER_VERSION, "Print the version and exit");
  app->set_help_flag("-h,--help", "Print this help and exit");
  app->require_subcommand(1);
  app->get_formatter()->column_width(34);
  app->footer(
      "Example:\n"
      "  espalier run recipe.yaml --model DIR --output OUT --workers 2\n\n"
      "`espalier COMMAND --help` explains a command. Exit codes: 0 done, 1 run failed, 2 usage, 3 bad input,\n"
      "4 corrupt state, 5 unreachable, 6 storage or limits, 130 interrupted.");
  AddRun(*app, invocation);
  AddPlan(*app, invocation);
  AddInspect(*app, invocation);
  AddVerify(*app, invocation);
  AddSubmit(*app, invocation);
  AddWatch(*app, invocation);
  AddRuns(*app, invocation);
  AddWorkers(*app, invocation);
  AddReport(*app, invocation);
  AddParam(*app, invocation);
  AddMask(*app, invocation);
  AddSave(*app, invocation);
  AddFinish(*app, invocation);
  AddCancel(*app, invocation);
  AddDelete(*app, invocation);
  AddHealth(*app, invocation);
  AddCompletion(*app, invocation);
  return app;
}

void AddCoordinatorOption(CLI::App& command, std::string& address) {
  address = ClientOptions().address;
  command.add_option("--coordinator", address, "Address of the coordinator")
      ->envname("ESPALIER_COORDINATOR")
      ->type_name("HOST:PORT")
      ->capture_default_str();
}

absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& address) {
  ClientOptions options;
  options.address = address;
  return Client::Create(options);
}

absl::StatusOr<std::string> RunNameOf(const std::string& text) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string id, ParseRunName(text));
  return RunName(id);
}

std::string ErrorText(const absl::Status& status) {
  return absl::StrCat("espalier: ", absl::StrReplaceAll(status.message(), {{"\n", "\n  "}}), " (", ReasonName(status),
                      ")\n");
}

}  // namespace espalier::cli
