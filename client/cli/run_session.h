#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/conductor.h"
#include "client/cli/embedded.h"
#include "client/cli/progress.h"
#include "client/cli/run_view.h"
#include "client/cli/state_dir.h"
#include "espalier/v1/sparsification_service.pb.h"

namespace espalier::cli {

struct RunSessionOptions {
  v1::RunSpec spec;
  EmbeddedOptions embedded;
  // Prints the address, for other commands.
  bool announce = false;
};

// How a run on this machine ended.
struct RunSessionResult {
  absl::Status status;
  // 128 + the signal that interrupted; decides over the status's own exit code then. 0 otherwise.
  int exit_code = 0;
  std::optional<v1::Run> run;
  std::optional<SparsityReport> report;
};

// Runs one recipe with a coordinator and workers as child processes. Shows progress; returns when the run has ended and
// no child is left. SIGINT and SIGTERM, which the constructor blocks and takes over for the whole process, cancel the run;
// a second one ends the children at once. Construct and call on the main thread, before any other thread is made.
class RunSession {
 public:
  // `state` outlives the session and is kept where the run or a child failed.
  RunSession(RunSessionOptions options, StateDir& state, Progress& progress);
  ~RunSession();

  RunSessionResult Run();

 private:
  // The loop over signals, children and news, until the run has ended or cannot go on.
  void Supervise();
  void OnSignal();
  void OnNews();
  void OnChildren();
  bool Queued() const;
  void CancelRun(const std::string& name);
  void Fail(absl::Status status);

  const RunSessionOptions options_;
  StateDir& state_;
  Progress& progress_;
  RunView view_;
  const UniqueFd signals_;
  std::unique_ptr<Embedded> embedded_;
  std::unique_ptr<Conductor> conductor_;
  std::thread canceller_;
  RunSessionResult result_;
  bool done_ = false;
  // The conductor has said its last.
  bool conducted_ = false;
  // The signal that interrupted; 0: none.
  int interrupted_ = 0;
  bool stop_at_once_ = false;
  // When to stop waiting for the coordinator's verdict after a worker has ended, or after a cancel.
  absl::Time verdict_ = absl::InfiniteFuture();
  // When all workers of a run that was made must have connected.
  absl::Time begin_by_ = absl::InfiniteFuture();
  // Workers that ended by themselves.
  std::vector<ChildProcess*> ended_;
};

}  // namespace espalier::cli
