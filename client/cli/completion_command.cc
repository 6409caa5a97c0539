#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/completion.h"
#include "proto/support/errors.h"

namespace espalier::cli {

void AddCompletion(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("completion", "Print the completion script of a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "Shell")->required()->check(CLI::IsMember({"bash", "zsh"}))->type_name("SHELL");
  command->footer(
      "Example:\n"
      "  source <(espalier completion bash)\n"
      "  espalier completion zsh > \"${fpath[1]}/_espalier\"");
  command->callback([shell, &app, &invocation] {
    invocation.body = [shell, &app]() -> absl::StatusOr<int> {
      std::cout << (*shell == "bash" ? BashCompletion(app) : ZshCompletion(app));
      return kExitOk;
    };
  });
}

}  // namespace espalier::cli
