// espalier-worker: one rank of the group that prunes a checkpoint.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/metrics/http_server.h"
#include "proto/metrics/metrics.h"
#include "proto/support/broken_pipe.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/names.h"
#include "proto/support/open_files.h"
#include "proto/support/options.h"
#include "proto/support/service_manager.h"
#include "proto/support/service_options.h"
#include "proto/support/status_macros.h"
#include "worker/device/open_device.h"
#include "worker/session/c10d_groups.h"
#include "worker/session/local_address.h"
#include "worker/session/reexec.h"
#include "worker/session/session.h"
#include "worker/session/worker_metrics.h"
#include "worker/session/worker_name.h"

namespace espalier {
namespace {

// For all that is left after the command in execution has ended, or was given up.
constexpr absl::Duration kExitGrace = absl::Seconds(4);

struct Arguments {
  std::string coordinator = "127.0.0.1:4770";
  std::string name;
  std::vector<std::string> model_roots;
  std::string bind;
  std::string interface;
  std::string device = "cpu";
  std::string backend;
  ServiceOptions service{.stop_grace = "5s"};
  std::string exit_on_disconnect_after;
  std::string metrics_listen = kMetricsOff;
};

std::optional<std::string> Environment(const char* name) {
  // Read before any thread of ours could change it; none does.
  const char* value = getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// Blocks the signals that end a worker, in this thread and all that it will start.
sigset_t BlockEndingSignals() {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  return ending;
}

// The first signal ends the session; a second one, or a command that does not end, ends the process.
void WaitForSignals(const sigset_t& ending, absl::Duration grace, Session& session) {
  int signal = 0;
  sigwait(&ending, &signal);
  LogInfo("stopping", {{"signal", absl::StrCat(signal)}});
  NotifyStopping();
  std::thread([ending, grace] {
    const timespec patience = absl::ToTimespec(grace + kExitGrace);
    _exit(sigtimedwait(&ending, nullptr, &patience) > 0 ? 128 + SIGTERM : 0);
  }).detach();
  session.Stop(grace);
}

absl::StatusOr<GroupPlace> PlaceOf(const Arguments& arguments, int gpu) {
  if (!arguments.interface.empty()) {
    ESPALIER_ASSIGN_OR_RETURN(std::string address, AddressOfInterface(arguments.interface));
    return GroupPlace{std::move(address), arguments.interface, gpu};
  }
  if (!arguments.bind.empty()) return GroupPlace{arguments.bind, "", gpu};
  ESPALIER_ASSIGN_OR_RETURN(std::string address, LocalAddressTowards(arguments.coordinator));
  return GroupPlace{std::move(address), "", gpu};
}

// What NCCL and LibTorch's watchdog of it read, to be set while there is no other thread; what the launcher has set wins. The
// group keeps its deadlines itself, and a rank that gives up reports it: the watchdog would end the process instead.
absl::Status PrepareNccl(const Arguments& arguments) {
  constexpr int kKeep = 0;
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", kKeep);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", kKeep);
  std::string interface = arguments.interface;
  if (!arguments.bind.empty()) {
    ESPALIER_ASSIGN_OR_RETURN(interface, InterfaceOfAddress(arguments.bind));
  }
  if (!interface.empty()) {
    setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", interface).c_str(), kKeep);  // = is "this very one"
  }
  return absl::OkStatus();
}

// Puts the device into use; `options` say which, and how its ranks talk to each other.
absl::Status UseDevice(const Arguments& arguments, SessionOptions& options, int& gpu) {
  // Before the device is opened, which starts threads.
  ESPALIER_RETURN_IF_ERROR(PrepareNccl(arguments));
  ESPALIER_ASSIGN_OR_RETURN(std::unique_ptr<Accelerator> device, OpenDevice(arguments.device, LocalRank(Environment)));
  const absl::string_view usual = device == nullptr ? kGloo : kNccl;
  const std::string backend = arguments.backend.empty() ? std::string(usual) : arguments.backend;
  if (backend == kNccl && device == nullptr) {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                     "--backend nccl: NCCL works between GPUs; give --device cuda as well", {{"field", "backend"}});
  }
  options.backends = {backend};
  options.device = device == nullptr ? arguments.device : device->name();
  gpu = device == nullptr ? 0 : device->number();
  if (device != nullptr) UseAccelerator(std::move(device));
  return absl::OkStatus();
}

absl::StatusOr<SessionOptions> OptionsOf(const Arguments& arguments) {
  SessionOptions options;
  options.host = HostName();
  options.worker = arguments.name.empty() ? DefaultWorkerName(options.host, Environment, ProcessMark())
                                          : SanitizeWorkerName(arguments.name);
  if (!arguments.name.empty() && options.worker != arguments.name) {
    return MakeError(
        v1::ERROR_REASON_REQUEST_INVALID,
        absl::StrCat("--name '", arguments.name, "' is not [a-z0-9.-]{1,63}; did you mean '", options.worker, "'?"),
        {{"field", "name"}});
  }
  if (!arguments.bind.empty()) ESPALIER_RETURN_IF_ERROR(CheckLocalAddress(arguments.bind));
  if (!arguments.interface.empty()) ESPALIER_RETURN_IF_ERROR(AddressOfInterface(arguments.interface).status());
  ESPALIER_ASSIGN_OR_RETURN(options.roots, PathRoots::Create(arguments.model_roots));
  ESPALIER_RETURN_IF_ERROR(CheckAddress("coordinator", arguments.coordinator));
  if (arguments.metrics_listen != kMetricsOff) {
    ESPALIER_RETURN_IF_ERROR(CheckAddress("metrics-listen", arguments.metrics_listen, PortZero::kTakesFreePort));
  }
  if (!arguments.exit_on_disconnect_after.empty()) {
    ESPALIER_ASSIGN_OR_RETURN(options.link.give_up_after,
                              ParseDurationOption("exit-on-disconnect-after", arguments.exit_on_disconnect_after));
  }
  options.link.coordinator = arguments.coordinator;
  options.link.seed = absl::HashOf(options.worker, options.incarnation);
  options.stuck = [](const std::string& reason) {
    LogWarn("reexecute", {{"reason", reason}});
    const absl::Status failed = ReexecuteSelf();
    LogError("reexecute_failed", {{"message", std::string(failed.message())}});
    // The launcher may start another; in this process a collective would stay entered for ever.
    _exit(kExitFailed);
  };
  return options;
}

// Null where the option says off.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(const std::string& address, const Metrics& metrics) {
  if (address == kMetricsOff) return nullptr;
  return HttpServer::Listen(address, {{"/metrics", [&metrics](absl::string_view) {
                                         return HttpReply{.content_type = kMetricsType, .body = metrics.Text()};
                                       }}});
}

int Run(const Arguments& arguments) {
  // First: the threads of the device and of the server are to inherit that signals are not theirs.
  const sigset_t ending = BlockEndingSignals();
  Metrics metrics(Metrics::Program::kWorker);
  WorkerMetrics counted(metrics);
  std::unique_ptr<HttpServer> http;
  absl::StatusOr<SessionOptions> options = OptionsOf(arguments);
  int gpu = 0;
  const absl::StatusOr<absl::Duration> grace = ParseDurationOption("stop-grace", arguments.service.stop_grace);
  absl::Status status = options.status();
  if (status.ok()) status = grace.status();
  if (status.ok()) status = UseDevice(arguments, *options, gpu);
  if (status.ok()) status = InitLog(options->worker, arguments.service.log_level, arguments.service.log_format);
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<HttpServer>> served = ServeMetrics(arguments.metrics_listen, metrics);
    status = served.status();
    if (status.ok()) http = *std::move(served);
  }
  if (!status.ok()) {
    fprintf(stderr, "%s\n", ErrorLine("espalier-worker", status).c_str());
    return ExitCodeOf(status);
  }
  options->metrics = &counted;
  const std::string worker = options->worker;
  const std::string device = options->device;
  const std::string backend = options->backends.front();
  LogInfo("starting", {{"worker", worker},
                       {"incarnation", options->incarnation},
                       {"coordinator", arguments.coordinator},
                       {"device", device},
                       {"backend", backend},
                       {"metrics", http == nullptr ? kMetricsOff : http->address()},
                       {"version", ESPALIER_VERSION}});
  C10dGroups groups(backend, [&arguments, gpu] { return PlaceOf(arguments, gpu); });
  Session session(*std::move(options), groups);
  std::thread([&ending, &session, grace = *grace] { WaitForSignals(ending, grace, session); }).detach();
  NotifyReady(absl::StrCat("worker ", worker, " of the coordinator at ", arguments.coordinator));
  status = session.Run();
  if (!status.ok()) LogError("ended", {{"reason", ReasonName(status)}, {"message", std::string(status.message())}});
  session.Stop(*grace);
  LogInfo("exiting", {});
  // The executor may be in a call that nothing ends, and other threads use the session: the system takes all of it back.
  fflush(nullptr);
  _exit(ExitCodeOf(status));
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  espalier::RememberArguments(argv);
  // Neither a peer that dies in the middle of a collective nor a log that nobody reads any more ends a worker.
  espalier::IgnoreBrokenPipes();
  espalier::RaiseOpenFileLimit();
  espalier::Arguments arguments;
  CLI::App app(
      "One rank of the group that prunes a checkpoint. Dials the coordinator and does what it says.\n\n"
      "Example:\n  espalier-worker --coordinator 10.0.0.1:4770 --name node7-0 --model-root /models");
  app.name("espalier-worker");
  app.add_option("--coordinator", arguments.coordinator, "host:port of the coordinator")->capture_default_str();
  app.add_option("--name", arguments.name,
                 "Stable name of this worker, [a-z0-9.-]{1,63}; default: host and the launcher's local rank, or "
                 "else the process. A second worker of the same name replaces the first");
  app.add_option("--model-root", arguments.model_roots,
                 "Folder that models and outputs may lie in; may be given several times; default: anywhere");
  CLI::Option* bind = app.add_option("--bind", arguments.bind,
                                     "IPv4 address of this machine at which other workers reach it; default: the one "
                                     "from which the coordinator is reached");
  app.add_option("--interface", arguments.interface, "Network interface for the same, e.g. eth0")->excludes(bind);
  app.add_option("--device", arguments.device,
                 "Device that holds the shards: cpu; cuda, the GPU of the launcher's local rank; cuda:N")
      ->capture_default_str();
  app.add_option("--backend", arguments.backend,
                 "How ranks talk to each other: gloo, or nccl between GPUs, each with one "
                 "rank; default: nccl with --device cuda, else gloo")
      ->check(CLI::IsMember({std::string(espalier::kGloo), std::string(espalier::kNccl)}));
  app.add_option("--metrics-listen", arguments.metrics_listen,
                 "Address of /metrics, host:port; port 0 takes a free one, off serves none")
      ->capture_default_str();
  app.add_option(
      "--exit-on-disconnect-after", arguments.exit_on_disconnect_after,
      "End with code 5 when there is no session with the coordinator for this long, e.g. 30s; default: never");
  app.set_version_flag("--version", std::string("espalier-worker ") + ESPALIER_VERSION);
  espalier::AddServiceOptions(app, arguments.service);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 prints help, version or what is wrong.
    return app.exit(error) == 0 ? espalier::kExitOk : espalier::kExitUsage;
  }
  const absl::Status read = espalier::ReadConfigFile(app, arguments.service);
  if (!read.ok()) {
    fprintf(stderr, "%s\n", espalier::ErrorLine("espalier-worker", read).c_str());
    return espalier::ExitCodeOf(read);
  }
  return espalier::Run(arguments);
}
