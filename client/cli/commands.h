#pragma once

// The subcommands of `espalier`, one file each. Each Add function declares one on `app`; when the command line names it,
// `invocation.body` is set to its work.

#include <functional>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/lib/client.h"

namespace espalier::cli {

struct Invocation {
  // The exit code, or an error that is printed and decides it (proto/support/errors.h).
  std::function<absl::StatusOr<int>()> body;
};

void AddRun(CLI::App& app, Invocation& invocation);
void AddPlan(CLI::App& app, Invocation& invocation);
void AddInspect(CLI::App& app, Invocation& invocation);
void AddVerify(CLI::App& app, Invocation& invocation);
void AddSubmit(CLI::App& app, Invocation& invocation);
void AddWatch(CLI::App& app, Invocation& invocation);
void AddRuns(CLI::App& app, Invocation& invocation);
void AddWorkers(CLI::App& app, Invocation& invocation);
void AddReport(CLI::App& app, Invocation& invocation);
void AddParam(CLI::App& app, Invocation& invocation);
void AddMask(CLI::App& app, Invocation& invocation);
void AddSave(CLI::App& app, Invocation& invocation);
void AddFinish(CLI::App& app, Invocation& invocation);
void AddCancel(CLI::App& app, Invocation& invocation);
void AddDelete(CLI::App& app, Invocation& invocation);
void AddHealth(CLI::App& app, Invocation& invocation);
void AddCompletion(CLI::App& app, Invocation& invocation);

// The whole command line. Parsing it sets `invocation.body`, which may refer to the app: keep both.
std::unique_ptr<CLI::App> MakeApp(Invocation& invocation);

// --coordinator, else ESPALIER_COORDINATOR, else 127.0.0.1:4770.
void AddCoordinatorOption(CLI::App& command, std::string& address);

// A client of that address. REQUEST_INVALID.
absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& address);

// A run as people name it, runs/{run} or the bare id. REQUEST_INVALID.
absl::StatusOr<std::string> RunNameOf(const std::string& text);

// "espalier: <what, where, what to do> (REASON)"; further lines of a message are indented.
std::string ErrorText(const absl::Status& status);

}  // namespace espalier::cli
