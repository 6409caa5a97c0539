#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "worker/session/command_context.h"
#include "worker/session/command_queue.h"
#include "worker/session/command_result.h"
#include "worker/session/generation_gate.h"
#include "worker/session/holding.h"
#include "worker/session/result_store.h"

namespace espalier {

struct ExecutorOptions {
  // Executes one command: sets pages and the ack's result. Its status goes into the ack.
  std::function<absl::Status(const CommandContext&, CommandResult&)> execute;
  std::function<void(v1::WorkerMessage)> send;
  // Told of every command after its execution, by the executor's thread.
  std::function<void(const v1::Command&, const v1::Ack&, absl::Duration elapsed)> executed =
      [](const v1::Command&, const v1::Ack&, absl::Duration) {};
  // At most one progress message in this time.
  absl::Duration progress_interval = absl::Milliseconds(100);
  // Of commands that carry none.
  absl::Duration default_deadline = absl::Minutes(10);
};

// One thread that executes the commands of a queue in order, each once: one that comes again is answered from what is
// kept. Commands of an old or void generation are refused. A command without an id is executed and not answered.
class Executor {
 public:
  // All outlive the executor. `holding` is told what is executed; null: nobody is.
  Executor(CommandQueue& queue, GenerationGate& gate, Holding* holding, const Clock& clock, ExecutorOptions options);
  ~Executor() { Finish(); }

  // Closes the queue and waits for the command in execution: nothing is executed afterwards. Not thread-safe.
  void Finish();

  // The coordinator that sends from now on; called between streams, by any thread.
  void SetCoordinator(const std::string& instance_id);

 private:
  void Loop();
  std::shared_ptr<const CommandResult> Execute(const QueuedCommand& queued);
  void Answer(const CommandResult& result);
  ProgressFn MakeProgress(const v1::Command& command);

  CommandQueue& queue_;
  GenerationGate& gate_;
  Holding* const holding_;
  const Clock& clock_;
  const ExecutorOptions options_;
  Mutex mutex_;
  ResultStore results_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace espalier
