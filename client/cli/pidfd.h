#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace espalier::cli {

// glibc 2.36 declares its own wrappers without extern "C", so that C++ cannot link them.
inline int PidfdOpen(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}
inline int PidfdSendSignal(int pidfd, int signal) {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

}  // namespace espalier::cli
