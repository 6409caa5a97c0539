#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/child_process.h"
#include "client/cli/state_dir.h"

namespace espalier::cli {

struct EmbeddedOptions {
  int workers = 1;
  std::string listen = "127.0.0.1:0";
  // Of the coordinator; "off": none.
  std::string metrics_listen = "off";
  // Empty: the coordinator's own default.
  std::string lease;
  // Of the workers; empty: their own default.
  std::string device;
};

// A coordinator and its workers as child processes on this machine. Not thread-safe; made and destroyed by the thread
// that lives as long as they shall (child_process.h). At the end nothing of it is left running.
class Embedded {
 public:
  // Returns when the coordinator listens and the workers are started (not yet connected). Gives up with CANCELLED when
  // `interrupt_fd` becomes readable. A coordinator that cannot start says why in its log: that is the error then, and
  // UNREACHABLE with the end of its log where it said nothing.
  static absl::StatusOr<std::unique_ptr<Embedded>> Start(const EmbeddedOptions& options, const StateDir& state,
                                                         int interrupt_fd);
  ~Embedded();

  // Where the coordinator really listens.
  const std::string& address() const { return address_; }
  ChildProcess& coordinator() const { return *coordinator_; }
  const std::vector<std::unique_ptr<ChildProcess>>& workers() const { return workers_; }

  // Ends all children; see StopAll.
  void Stop(absl::Duration grace);

 private:
  Embedded() = default;

  std::string address_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
};

// "worker-1 (pid 7) was killed by signal 9 (Killed)", and the last lines of its log.
std::string DescribeEnd(ChildProcess& child);

}  // namespace espalier::cli
