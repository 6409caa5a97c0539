#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"

namespace espalier {

// What every service of ours can be told.
struct ServiceOptions {
  // What is told to end has this time for it, and a second signal ends it at once. `stop_grace` is the default on the way
  // in.
  std::string stop_grace;
  std::string config;
  std::string log_level = "info";
  std::string log_format = "text";
};

// Adds these options; call when the others are there. From then on each option is also an
// environment variable: --state-dir is ESPALIER_STATE_DIR. The app's help names them.
void AddServiceOptions(CLI::App& app, ServiceOptions& options);

// After the command line and the environment were read: takes from the file of --config, `option = value` a line (TOML),
// what neither of them has said. REQUEST_INVALID (field: config) when it cannot be read, or names what is no option.
absl::Status ReadConfigFile(CLI::App& app, const ServiceOptions& options);

}  // namespace espalier
