#include "client/cli/embedded.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr int kTailLines = 20;
constexpr char kCoordinator[] = "espalier-coordinator";

// Why a coordinator that did not come up ended.
absl::Status WhyEnded(ChildProcess& coordinator) {
  const std::optional<absl::Status> said = FromErrorLine(kCoordinator, TailOf(coordinator.log_path(), 1));
  return said ? *said : MakeError(v1::ERROR_REASON_UNREACHABLE, DescribeEnd(coordinator));
}

// The address that the coordinator writes to the pipe, one line.
absl::StatusOr<std::string> ReadAddress(int pipe, ChildProcess& coordinator, int interrupt_fd) {
  const absl::Time deadline = absl::Now() + kStartTimeout;
  std::string text;
  while (true) {
    pollfd fds[] = {{pipe, POLLIN, 0}, {coordinator.pidfd(), POLLIN, 0}, {interrupt_fd, POLLIN, 0}};
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0) {
      return MakeError(v1::ERROR_REASON_UNREACHABLE,
                       absl::StrCat("the coordinator (pid ", coordinator.pid(),
                                    ") did not say where it listens within ", absl::FormatDuration(kStartTimeout),
                                    "; its log ends with:\n", TailOf(coordinator.log_path(), kTailLines)));
    }
    if (poll(fds, 3, static_cast<int>(left)) < 0 && errno != EINTR) continue;
    if (fds[2].revents != 0) return absl::CancelledError("interrupted");
    if (fds[0].revents != 0) {
      char buffer[256];
      const ssize_t got = read(pipe, buffer, sizeof buffer);
      if (got > 0) text.append(buffer, static_cast<size_t>(got));
      if (const size_t end = text.find('\n'); end != std::string::npos) return text.substr(0, end);
      if (got > 0) continue;
    }
    // The other end of the pipe is closed, or the coordinator is gone.
    if (coordinator.Poll()) return WhyEnded(coordinator);
    poll(&fds[1], 1, 10);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Embedded>> Embedded::Start(const EmbeddedOptions& options, const StateDir& state,
                                                          int interrupt_fd) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string coordinator, FindProgram(kCoordinator));
  ESPALIER_ASSIGN_OR_RETURN(const std::string worker, FindProgram("espalier-worker"));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("pipe: errno ", errno), {{"what", "pipe"}});
  }
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);

  std::unique_ptr<Embedded> embedded(new Embedded());
  ChildOptions child;
  child.name = "coordinator";
  child.program = coordinator;
  child.log_path = state.Log(child.name);
  child.inherited = {write_end.get()};
  child.arguments = {"--listen",    options.listen, "--metrics-listen", options.metrics_listen,
                     "--state-dir", state.path(),   "--port-fd",        absl::StrCat(write_end.get())};
  if (!options.lease.empty()) child.arguments.insert(child.arguments.end(), {"--lease", options.lease});
  ESPALIER_ASSIGN_OR_RETURN(embedded->coordinator_, ChildProcess::Start(child));
  write_end.Reset();
  ESPALIER_ASSIGN_OR_RETURN(embedded->address_, ReadAddress(read_end.get(), *embedded->coordinator_, interrupt_fd));
  for (int i = 0; i < options.workers; ++i) {
    child.name = absl::StrCat("worker-", i);
    child.program = worker;
    child.log_path = state.Log(child.name);
    child.inherited.clear();
    // Whatever the environment says: two of them cannot have one port.
    child.arguments = {"--coordinator", embedded->address_, "--name", child.name, "--metrics-listen", "off"};
    if (!options.device.empty()) child.arguments.insert(child.arguments.end(), {"--device", options.device});
    // As a launcher would: by it, each takes a GPU of its own.
    child.environment = {absl::StrCat("LOCAL_RANK=", i)};
    ESPALIER_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> started, ChildProcess::Start(child));
    embedded->workers_.push_back(std::move(started));
  }
  return embedded;
}

Embedded::~Embedded() {
  Stop(absl::ZeroDuration());
}

void Embedded::Stop(absl::Duration grace) {
  std::vector<ChildProcess*> all;
  for (const auto& worker : workers_) all.push_back(worker.get());
  if (coordinator_ != nullptr) all.push_back(coordinator_.get());
  StopAll(all, grace);
}

std::string DescribeEnd(ChildProcess& child) {
  const auto& exit = child.Poll();
  std::string text = absl::StrCat(child.name(), " (pid ", child.pid(), ") ", exit ? exit->Describe() : "is running");
  const std::string tail = TailOf(child.log_path(), kTailLines);
  if (!tail.empty()) absl::StrAppend(&text, "; its log ends with:\n  ", absl::StrReplaceAll(tail, {{"\n", "\n  "}}));
  return text;
}

}  // namespace espalier::cli
