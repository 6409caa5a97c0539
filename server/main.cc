// espalier-coordinator: schedules pruning runs on workers.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/metrics/http_server.h"
#include "proto/metrics/metrics.h"
#include "proto/support/broken_pipe.h"
#include "proto/support/clock.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/options.h"
#include "proto/support/service_manager.h"
#include "proto/support/service_options.h"
#include "proto/support/status_macros.h"
#include "server/api/grpc_server.h"
#include "server/metrics/coordinator_metrics.h"
#include "server/metrics/measured_journal.h"
#include "server/metrics/status_page.h"
#include "server/run/coordinator.h"
#include "server/run/event_loop.h"
#include "server/store/journal.h"

namespace espalier {
namespace {

struct Flags {
  std::string listen = "127.0.0.1:4770";
  std::string metrics_listen = "127.0.0.1:4771";
  std::string state_dir;
  std::string lease = "15s";
  std::string heartbeat_interval;
  std::vector<std::string> model_roots;
  // The drain answers every call; what is left then are clients that do not read, and idle connections.
  ServiceOptions service{.stop_grace = "1s"};
  int port_fd = -1;
};

absl::StatusOr<CoordinatorOptions> OptionsOf(const Flags& flags) {
  CoordinatorOptions options;
  ESPALIER_RETURN_IF_ERROR(CheckAddress("listen", flags.listen, PortZero::kTakesFreePort));
  ESPALIER_ASSIGN_OR_RETURN(options.lease.lease, ParseDurationOption("lease", flags.lease));
  options.lease.heartbeat_interval = std::min(absl::Seconds(1), options.lease.lease / 8);
  if (!flags.heartbeat_interval.empty()) {
    ESPALIER_ASSIGN_OR_RETURN(options.lease.heartbeat_interval,
                              ParseDurationOption("heartbeat-interval", flags.heartbeat_interval));
  }
  if (options.lease.heartbeat_interval * 2 > options.lease.lease) {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                     "--heartbeat-interval: must be at most half of --lease, or a single late heartbeat loses a worker",
                     {{"field", "heartbeat-interval"}});
  }
  for (const std::string& root : flags.model_roots) {
    if (root.empty() || root[0] != '/') {
      return MakeError(v1::ERROR_REASON_REQUEST_INVALID, absl::StrCat("--model-root: '", root, "' is not absolute"),
                       {{"field", "model-root"}});
    }
    options.model_roots.push_back(root);
  }
  return options;
}

// The figures and the status page. Null where the flag says off.
absl::StatusOr<std::unique_ptr<HttpServer>> ServePages(const Flags& flags, const Metrics& metrics, EventLoop& loop,
                                                       const Coordinator& coordinator) {
  if (flags.metrics_listen == kMetricsOff) return nullptr;
  ESPALIER_RETURN_IF_ERROR(CheckAddress("metrics-listen", flags.metrics_listen, PortZero::kTakesFreePort));
  const auto figures = [&metrics](absl::string_view) {
    return HttpReply{.content_type = kMetricsType, .body = metrics.Text()};
  };
  const auto status = [&loop, &coordinator](absl::string_view query) { return ServeStatus(loop, coordinator, query); };
  return HttpServer::Listen(flags.metrics_listen, {{"/metrics", figures}, {"/", status}});
}

absl::StatusOr<std::unique_ptr<Journal>> OpenJournal(const std::string& state_dir) {
  if (!state_dir.empty()) return Journal::Open(state_dir);
  LogWarn("no_state_dir", {{"effect", "runs are forgotten when this process ends; keep them with --state-dir"}});
  return NewMemoryJournal();
}

absl::Status TellPort(int fd, const std::string& address) {
  const std::string line = absl::StrCat(address, "\n");
  const bool written = write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  close(fd);
  if (written) return absl::OkStatus();
  return MakeError(v1::ERROR_REASON_STORAGE_UNWRITABLE, absl::StrCat("cannot write the address to descriptor ", fd),
                   {{"path", absl::StrCat("fd ", fd)}, {"errno", absl::StrCat(errno)}});
}

// SIGTERM and SIGINT, by a thread that waits for them: the first asks for an end, the second is one.
class UnixSignals {
 public:
  // Blocks the signals in this thread and all that it starts; call before any other thread exists.
  UnixSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    IgnoreBrokenPipes();
    thread_ = std::thread([this] { Wait(); });
  }
  ~UnixSignals() {
    done_ = true;
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  // The signal that asked for the end.
  int WaitForFirst() { return first_.get_future().get(); }

 private:
  void Wait() {
    bool asked = false;
    while (true) {
      int signal = 0;
      sigwait(&set_, &signal);
      if (done_) return;
      if (signal == SIGUSR1) continue;
      if (asked) _exit(128 + signal);
      asked = true;
      first_.set_value(signal);
    }
  }

  sigset_t set_;
  std::atomic<bool> done_ = false;
  std::promise<int> first_;
  std::thread thread_;
};

absl::Status Serve(const Flags& flags) {
  UnixSignals signals;
  ESPALIER_RETURN_IF_ERROR(InitLog("coordinator", flags.service.log_level, flags.service.log_format));
  ESPALIER_ASSIGN_OR_RETURN(CoordinatorOptions options, OptionsOf(flags));
  ESPALIER_ASSIGN_OR_RETURN(const absl::Duration grace, ParseDurationOption("stop-grace", flags.service.stop_grace));
  ESPALIER_ASSIGN_OR_RETURN(std::unique_ptr<Journal> opened, OpenJournal(flags.state_dir));
  Metrics metrics(Metrics::Program::kCoordinator);
  MeasuredJournal journal(std::move(opened), metrics, SystemClock());
  CoordinatorMetrics observer(metrics, SystemClock());
  options.observer = &observer;
  EventLoop loop(SystemClock());
  Coordinator coordinator(loop, journal, options);
  ESPALIER_RETURN_IF_ERROR(coordinator.Load());
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcServer> server,
                            GrpcServer::Listen(flags.listen, loop, coordinator, metrics));
  ESPALIER_ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> http, ServePages(flags, metrics, loop, coordinator));
  loop.Start();
  LogInfo("listening", {{"address", server->address()},
                        {"metrics", http == nullptr ? kMetricsOff : http->address()},
                        {"version", ESPALIER_VERSION}});
  if (flags.port_fd >= 0) ESPALIER_RETURN_IF_ERROR(TellPort(flags.port_fd, server->address()));
  NotifyReady(absl::StrCat("listening at ", server->address()));

  const int signal = signals.WaitForFirst();
  LogInfo("draining", {{"signal", absl::StrCat(signal)}});
  NotifyStopping();
  server->SetNotServing();
  loop.Post([&coordinator] { coordinator.Drain(); });
  server->Shutdown(grace);
  http.reset();  // its pages ask the loop
  loop.Stop();
  LogInfo("stopped");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Schedules the stages of pruning recipes on workers; `espalier` and any gRPC client talk to it.");
  app.footer(
      "Example:\n  espalier-coordinator --listen 0.0.0.0:4770 --state-dir /var/lib/espalier\n"
      "  espalier-worker --coordinator 127.0.0.1:4770");
  app.set_version_flag("--version", absl::StrCat("espalier-coordinator ", ESPALIER_VERSION));
  app.add_option("--listen", flags.listen, "Address, host:port; port 0 takes a free one")->capture_default_str();
  app.add_option("--metrics-listen", flags.metrics_listen,
                 "Address of /metrics and of the status page, host:port; port 0 takes a free one, off serves none")
      ->capture_default_str();
  app.add_option("--state-dir", flags.state_dir, "Directory of the journal; without it runs are forgotten at the end");
  app.add_option("--lease", flags.lease, "A worker that is silent for this long is lost")->capture_default_str();
  app.add_option("--heartbeat-interval", flags.heartbeat_interval,
                 "Between heartbeats of a worker (default: 1s, or an eighth of a shorter lease)");
  app.add_option("--model-root", flags.model_roots, "Models and outputs must lie below; may be given several times");
  app.add_option("--port-fd", flags.port_fd, "Descriptor to which host:port and a newline are written once it listens");
  AddServiceOptions(app, flags.service);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kExitOk : kExitUsage;
  }
  absl::Status status = ReadConfigFile(app, flags.service);
  if (status.ok()) status = Serve(flags);
  if (status.ok()) return kExitOk;
  std::cerr << ErrorLine("espalier-coordinator", status) << std::endl;
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  return espalier::Main(argc, argv);
}
