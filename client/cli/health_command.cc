#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  bool json = false;
};

absl::StatusOr<int> Health(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  ESPALIER_ASSIGN_OR_RETURN(const bool serving, client->CheckHealth("espalier.v1.SparsificationService"));
  ESPALIER_ASSIGN_OR_RETURN(const v1::GetServerInfoResponse info, client->GetServerInfo());
  if (options.json) {
    nlohmann::ordered_json json = {{"serving", serving}};
    json.update(ToJson(info));
    std::cout << Pretty(json);
  } else {
    std::cout << client->address() << " " << (serving ? "SERVING" : "NOT_SERVING") << ", espalier " << info.version()
              << ", instance " << info.instance_id() << "\n";
  }
  return serving ? kExitOk : kExitUnreachable;
}

}  // namespace

void AddHealth(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("health", "Ask a coordinator whether it serves; exit 5 where it does not");
  const auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "Print build, limits and instance as JSON");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer("Example:\n  espalier health --coordinator 10.0.0.7:4770");
  command->callback([options, &invocation] { invocation.body = [options] { return Health(*options); }; });
}

}  // namespace espalier::cli
