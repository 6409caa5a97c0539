#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/support/clock.h"
#include "proto/support/uuid.h"
#include "worker/checkpoint/path_roots.h"
#include "worker/session/command_queue.h"
#include "worker/session/executor.h"
#include "worker/session/generation_gate.h"
#include "worker/session/group.h"
#include "worker/session/holding.h"
#include "worker/session/link.h"
#include "worker/session/void_watch.h"
#include "worker/session/worker_metrics.h"
#include "worker/session/worker_state.h"

namespace espalier {

struct SessionOptions {
  LinkOptions link;
  std::string worker;  // name, [a-z0-9.-]{1,63}
  std::string incarnation = NewUuid();
  std::string host;
  std::string device = "cpu";
  std::vector<std::string> backends;
  PathRoots roots;
  // Called, from a thread of its own, when the executor does not leave a void generation.
  std::function<void(const std::string& reason)> stuck;
  absl::Duration void_grace = absl::Seconds(1);
  // Outlives the session; null: nothing is counted.
  WorkerMetrics* metrics = nullptr;
};

// A checkpoint worker: the link to the coordinator, one thread that executes commands, one that inspects models, one that
// watches void generations, and what the run at hand needs. Run is called once; Stop is thread-safe.
class Session final : public LinkHandler {
 public:
  // `groups` and `clock` outlive the session.
  Session(SessionOptions options, GroupFactory& groups, const Clock& clock = SystemClock());

  // Until Stop, a Dismiss or a refusal; see Link::Run.
  absl::Status Run() { return link_.Run(); }

  // Takes no more commands, gives the one in execution `grace` to end and be answered, frees what is held - with it the
  // saves that were not published - and ends the session. A second call waits for the first.
  void Stop(absl::Duration grace);

  v1::Hello MakeHello() override;
  v1::Heartbeat MakeHeartbeat() override { return holding_.Heartbeat(); }
  void OnWelcome(const v1::Welcome& welcome) override;
  void OnCommand(v1::Command command) override;
  void OnVoidGeneration(const v1::VoidGeneration& message) override;
  void OnSessionEnded() override;

 private:
  const SessionOptions options_;
  std::once_flag stopped_;
  GenerationGate gate_;
  Holding holding_;
  CommandQueue commands_;
  CommandQueue inspections_;
  WorkerState state_;
  Link link_;
  VoidWatch watch_;
  // Last: their threads use all of the above.
  Executor executor_;
  Executor inspector_;
};

}  // namespace espalier
