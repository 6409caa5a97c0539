#include "client/cli/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/pidfd.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

constexpr int64_t kTailBytes = 16 << 10;

absl::Status CannotStart(const ChildOptions& options, absl::string_view step, int error) {
  return MakeError(v1::ERROR_REASON_INVARIANT,
                   absl::StrCat("cannot start ", options.name, " (", options.program, "): ", step, ": ",
                                std::generic_category().message(error)),
                   {{"what", std::string(step)}, {"where", options.program}});
}

// What the child does between fork and exec. Only calls that are async-signal-safe: other threads may have held locks.
// Never returns; an error number goes to `failure`.
[[noreturn]] void BecomeProgram(const char* program, char* const* argv, char* const* environment,
                                const std::vector<int>& inherited, int log, int null, int failure, pid_t parent) {
  const auto fail = [failure] {
    const int error = errno;
    while (write(failure, &error, sizeof error) < 0 && errno == EINTR) {
    }
    _exit(127);
  };
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail();
  // The parent may have died before that line.
  if (getppid() != parent) _exit(127);
  setpgid(0, 0);
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) fail();
  if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) fail();
  for (const int fd : inherited) {
    if (fcntl(fd, F_SETFD, 0) != 0) fail();
  }
  execve(program, argv, environment);
  fail();
  _exit(127);
}

// This process's variables, but for those that `own` sets.
std::vector<char*> EnvironmentWith(std::vector<std::string>& own) {
  std::vector<char*> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool replaced = std::any_of(own.begin(), own.end(), [&](absl::string_view set) {
      return absl::StartsWith(*variable, set.substr(0, set.find('=') + 1));
    });
    if (!replaced) all.push_back(*variable);
  }
  for (std::string& variable : own) all.push_back(variable.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

std::string ExitState::Describe() const {
  if (signal == 0) return absl::StrCat("exited with code ", code);
  const char* name = sigdescr_np(signal);
  return absl::StrCat("was killed by signal ", signal, " (", name == nullptr ? "unknown" : name, ")");
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ChildOptions& options) {
  const UniqueFd log(open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) {
    return MakeError(v1::ERROR_REASON_STORAGE_UNWRITABLE,
                     absl::StrCat("cannot write the log ", options.log_path, ": ",
                                  std::generic_category().message(errno), "; choose another --state-dir"),
                     {{"path", options.log_path}, {"errno", absl::StrCat(errno)}});
  }
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2];
  if (!null.valid() || pipe2(ends, O_CLOEXEC) != 0) return CannotStart(options, "pipe", errno);
  const UniqueFd failure_read(ends[0]);
  UniqueFd failure_write(ends[1]);

  std::vector<char*> argv;
  std::vector<std::string> arguments = options.arguments;
  std::string program = options.program;
  argv.push_back(program.data());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<std::string> own = options.environment;
  const std::vector<char*> environment = EnvironmentWith(own);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return CannotStart(options, "fork", errno);
  if (pid == 0) {
    BecomeProgram(program.c_str(), argv.data(), environment.data(), options.inherited, log.get(), null.get(),
                  failure_write.get(), parent);
  }
  UniqueFd pidfd(PidfdOpen(pid));
  const int pidfd_error = errno;
  failure_write.Reset();
  // Ends with the exec, which closes the other end, or with the number of an error.
  int error = 0;
  ssize_t got;
  while ((got = read(failure_read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got > 0 || !pidfd.valid()) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return got > 0 ? CannotStart(options, "exec", error) : CannotStart(options, "pidfd_open", pidfd_error);
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(options, pid, std::move(pidfd)));
}

ChildProcess::ChildProcess(ChildOptions options, pid_t pid, UniqueFd pidfd)
    : options_(std::move(options)), pid_(pid), pidfd_(std::move(pidfd)) {}

ChildProcess::~ChildProcess() {
  if (Poll()) return;
  Signal(SIGKILL);
  siginfo_t info;
  while (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0 && errno == EINTR) {
  }
}

const std::optional<ExitState>& ChildProcess::Poll() {
  if (exit_) return exit_;
  siginfo_t info = {};
  if (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) == 0 && info.si_pid == pid_) {
    exit_ = info.si_code == CLD_EXITED ? ExitState{info.si_status, 0} : ExitState{-1, info.si_status};
  }
  return exit_;
}

void ChildProcess::Signal(int signal) {
  if (!exit_) PidfdSendSignal(pidfd_.get(), signal);
}

void StopAll(absl::Span<ChildProcess* const> children, absl::Duration grace) {
  const auto wait_until = [&](absl::Time deadline) {
    while (true) {
      std::vector<pollfd> alive;
      for (ChildProcess* child : children) {
        if (!child->Poll()) alive.push_back({child->pidfd(), POLLIN, 0});
      }
      if (alive.empty()) return true;
      const int64_t left = absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
      if (left <= 0) return false;
      poll(alive.data(), alive.size(), static_cast<int>(std::min<int64_t>(left, 1000)));
    }
  };
  for (ChildProcess* child : children) child->Signal(SIGTERM);
  if (wait_until(absl::Now() + grace)) return;
  for (ChildProcess* child : children) child->Signal(SIGKILL);
  wait_until(absl::InfiniteFuture());
}

absl::StatusOr<std::string> FindProgram(absl::string_view name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path here = self.parent_path();
  const std::filesystem::path candidates[] = {here / std::string(name),
                                              here.parent_path() / "libexec" / "espalier" / std::string(name)};
  for (const auto& candidate : candidates) {
    if (absl::StrContains(name, "/")) break;
    if (access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  return MakeError(
      v1::ERROR_REASON_INVARIANT,
      absl::StrCat(name, " is neither ", candidates[0].string(), " nor ", candidates[1].string(), "; install it there"),
      {{"what", std::string(name)}, {"where", here.string()}});
}

std::string TailOf(const std::string& path, int lines) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return "";
  const int64_t size = lseek(file.get(), 0, SEEK_END);
  std::string text(static_cast<size_t>(std::clamp<int64_t>(size, 0, kTailBytes)), '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), std::max<int64_t>(0, size - kTailBytes));
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t begin = text.size();
  for (int i = 0; i < lines && begin != std::string::npos && begin > 0; ++i) begin = text.rfind('\n', begin - 1);
  return begin == std::string::npos || begin == 0 ? text : text.substr(begin + 1);
}

}  // namespace espalier::cli
