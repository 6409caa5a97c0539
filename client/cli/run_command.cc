#include <unistd.h>

#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/report_output.h"
#include "client/cli/run_session.h"
#include "client/cli/spec_options.h"
#include "client/cli/terminal.h"
#include "client/cli/text.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/clock.h"
#include "proto/support/errors.h"
#include "proto/support/options.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

constexpr int64_t kTerminalRows = 20;

struct Options {
  SpecOptions spec;
  bool json = false;
  std::string listen;
  std::string state_dir;
  std::string lease;
  std::string metrics_listen;
  std::string device;
};

std::string Summary(const v1::Run& run) {
  using google::protobuf::util::TimeUtil;
  const int64_t nanos = TimeUtil::DurationToNanoseconds(run.end_time() - run.create_time());
  const std::string what =
      run.output_path().empty() ? absl::StrCat(run.name(), " succeeded") : absl::StrCat("saved ", run.output_path());
  return absl::StrCat(what, " in ", Seconds(absl::Nanoseconds(nanos)));
}

absl::StatusOr<int> Run(const Options& options) {
  if (options.spec.output.empty() && !options.spec.hold) {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID, "run without --output would save nothing; give one, or --hold",
                     {{"field", "output"}});
  }
  RunSessionOptions session;
  if (!options.listen.empty()) {
    ESPALIER_RETURN_IF_ERROR(CheckAddress("listen", options.listen, PortZero::kTakesFreePort));
  }
  if (!options.metrics_listen.empty()) {
    ESPALIER_RETURN_IF_ERROR(CheckAddress("metrics-listen", options.metrics_listen, PortZero::kTakesFreePort));
    session.embedded.metrics_listen = options.metrics_listen;
  }
  if (!options.lease.empty()) ESPALIER_RETURN_IF_ERROR(ParseDurationOption("lease", options.lease).status());
  ESPALIER_ASSIGN_OR_RETURN(session.spec, MakeSpec(options.spec));
  session.embedded.workers = options.spec.workers;
  session.embedded.listen = !options.listen.empty() ? options.listen
                            : options.spec.hold     ? ClientOptions().address
                                                    : session.embedded.listen;
  session.embedded.lease = options.lease;
  session.embedded.device = options.device;
  session.announce = options.spec.hold || !options.listen.empty();

  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<StateDir> state, StateDir::Open(options.state_dir));
  // Progress goes to standard error, so that standard output holds the report alone.
  Progress progress(std::cerr, DetectTerminal(STDERR_FILENO), [] { return SystemClock().Monotonic(); });
  RunSessionResult result = RunSession(std::move(session), *state, progress).Run();
  if (!result.status.ok()) {
    if (result.exit_code == 0) return result.status;
    std::cerr << ErrorText(result.status);
    return result.exit_code;
  }
  if (options.json) {
    std::cout << ReportJson(*result.report);
  } else if (DetectTerminal(STDOUT_FILENO).interactive) {
    // What fits on a screen; `espalier inspect` shows all of it again.
    std::cout << "\n" << ReportText(*result.report, kTerminalRows) << "\n";
  } else {
    std::cout << ReportText(*result.report);
  }
  std::cout.flush();
  progress.Line(Summary(*result.run));
  return kExitOk;
}

}  // namespace

void AddRun(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("run", "Prune a checkpoint with a coordinator and workers on this machine");
  const auto options = std::make_shared<Options>();
  AddSpecOptions(*command, options->spec, /*output_required=*/false);
  command->add_flag("--json", options->json, "Print the report as JSON");
  command
      ->add_option("--listen", options->listen,
                   "Address of the coordinator [a free port of loopback; with --hold 127.0.0.1:4770]")
      ->type_name("HOST:PORT");
  command
      ->add_option("--state-dir", options->state_dir,
                   "Keep journal and logs there [a temporary folder, removed after success]")
      ->type_name("DIR");
  command
      ->add_option("--metrics-listen", options->metrics_listen,
                   "Address of the coordinator's /metrics and status page [none]")
      ->type_name("HOST:PORT");
  command->add_option("--lease", options->lease, "A worker silent for this long is lost, e.g. 15s")
      ->type_name("DURATION");
  command
      ->add_option("--device", options->device,
                   "Device that holds the shards: cpu, or cuda for a GPU to each worker (builds for NVIDIA GPUs) [cpu]")
      ->type_name("DEVICE");
  command->footer(
      "Example:\n"
      "  espalier run examples/smollm2/prune-50.yaml --model SmolLM2-135M --output pruned --workers 2");
  command->callback([options, &invocation] { invocation.body = [options] { return Run(*options); }; });
}

}  // namespace espalier::cli
