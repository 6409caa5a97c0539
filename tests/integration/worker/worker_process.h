#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace espalier::testing {

// A worker as a process of its own, killed at the end where it still runs.
class WorkerProcess {
 public:
  // Without a name where `name` is empty.
  WorkerProcess(const std::string& program, const std::string& coordinator, const std::string& name,
                const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    pid_ = fork();
    if (pid_ != 0) return;
    signal(SIGPIPE, SIG_DFL);  // as a shell starts it, whatever this process has inherited
    for (const auto& [variable, value] : environment) setenv(variable.c_str(), value.c_str(), 1);
    execl(program.c_str(), program.c_str(), "--coordinator", coordinator.c_str(), name.empty() ? nullptr : "--name",
          name.c_str(), nullptr);
    _exit(127);
  }
  ~WorkerProcess() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    Wait();
  }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  void Signal(int number) const { kill(pid_, number); }
  // Its wait status.
  int Wait() {
    int status = -1;
    EXPECT_EQ(waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
    return status;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace espalier::testing
