#pragma once

#include <signal.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cli/unique_fd.h"

namespace espalier::cli {

struct ChildOptions {
  // For people, e.g. "worker-0".
  std::string name;
  // Path of the executable; never searched for.
  std::string program;
  // Without argv[0].
  std::vector<std::string> arguments;
  // NAME=VALUE, for variables that it has instead of, or beside, this process's.
  std::vector<std::string> environment;
  // Receives standard output and error, appended. Standard input is empty.
  std::string log_path;
  // Descriptors that the child keeps, under their numbers; it gets no others.
  std::vector<int> inherited;
};

// How a process ended.
struct ExitState {
  // Exit code; -1 where a signal ended it.
  int code = -1;
  // 0 where it exited.
  int signal = 0;
  // "exited with code 3", "was killed by signal 9 (Killed)"
  std::string Describe() const;
};

// A process that does not outlive this one: the kernel kills it (PR_SET_PDEATHSIG) when the thread that started it ends,
// also by kill -9. So start children from a thread that lives as long as they shall. A child leads a process group of its
// own: Ctrl-C on the terminal reaches this process alone. Not thread-safe.
class ChildProcess {
 public:
  // STORAGE_UNWRITABLE (path) where the log cannot be opened, INVARIANT where the program cannot be started.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);

  // Kills and reaps a child that still lives.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& log_path() const { return options_.log_path; }
  pid_t pid() const { return pid_; }
  // Becomes readable when the child ends.
  int pidfd() const { return pidfd_.get(); }

  // How it ended, once it has. Reaps.
  const std::optional<ExitState>& Poll();
  // By pidfd: never reaches another process that got the number.
  void Signal(int signal);

 private:
  ChildProcess(ChildOptions options, pid_t pid, UniqueFd pidfd);

  const ChildOptions options_;
  const pid_t pid_;
  const UniqueFd pidfd_;
  std::optional<ExitState> exit_;
};

// SIGTERM to all, `grace` for them to end, then SIGKILL (which ends a stopped process too); returns when all are reaped.
void StopAll(absl::Span<ChildProcess* const> children, absl::Duration grace);

// Path of a program of ours: beside this executable (/proc/self/exe), else in ../libexec/espalier. Never by PATH.
// INVARIANT (what, where) when it is in neither.
absl::StatusOr<std::string> FindProgram(absl::string_view name);

// The last `lines` lines of a file, at most 16 KiB; empty when it cannot be read.
std::string TailOf(const std::string& path, int lines);

}  // namespace espalier::cli
