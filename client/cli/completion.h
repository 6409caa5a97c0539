#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace espalier::cli {

// Completion scripts made from the declared options, so that they cannot lag behind: subcommands, options with their
// choices, files and directories where an argument is one.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);

}  // namespace espalier::cli
