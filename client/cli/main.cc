#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/interrupt.h"
#include "proto/support/errors.h"
#include "proto/support/open_files.h"

namespace espalier::cli {
namespace {

// "espalier run": the command that the words on the line name.
std::string CommandOf(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* sub : app.get_subcommands()) absl::StrAppend(&name, " ", sub->get_name());
  return name;
}

int Main(int argc, char** argv) {
  Invocation invocation;
  const auto app = MakeApp(invocation);
  try {
    app->parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app->exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "espalier: " << error.what() << "; see `" << CommandOf(*app) << " --help`\n";
    return kExitUsage;
  }
  ExitOnInterrupt();
  const absl::StatusOr<int> result = invocation.body();
  std::cout.flush();
  if (!result.ok()) std::cerr << ErrorText(result.status());
  if (result.ok() && !std::cout) {
    std::cerr << "espalier: cannot write to standard output\n";
    return kExitStorage;
  }
  return result.ok() ? *result : ExitCodeOf(result.status());
}

}  // namespace
}  // namespace espalier::cli

int main(int argc, char** argv) {
  espalier::RaiseOpenFileLimit();  // inspect, verify and plan read checkpoints themselves
  return espalier::cli::Main(argc, argv);
}
