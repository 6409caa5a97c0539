#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/cli/unique_fd.h"
#include "client/lib/client.h"
#include "proto/support/mutex.h"

namespace espalier::cli {

// The run was made.
struct RunCreated {
  v1::Run run;
};
// The end of a conductor. `run` is absent where none was made; `report` is there where it succeeded.
struct RunEnded {
  absl::Status status;
  std::optional<v1::Run> run;
  std::optional<SparsityReport> report;
};
using RunNews = std::variant<RunCreated, v1::RunEvent, RunEnded>;

// Drives one run on a thread of its own - waits for workers, creates, watches, fetches the report - and tells the news to
// the thread that owns it, which thereby is free to look after processes and signals. The last news is RunEnded.
class Conductor {
 public:
  // Starts. Waits at most `worker_timeout` for the first worker, then WORKERS_MISSING.
  Conductor(std::unique_ptr<Client> client, v1::RunSpec spec, absl::Duration worker_timeout);
  // Cancels and joins.
  ~Conductor();

  // Readable while there is news.
  int fd() const { return event_.get(); }
  std::optional<RunNews> Next();
  // Stops waiting and watching; the run itself is not cancelled.
  void Cancel() { cancellation_.Cancel(); }

 private:
  void Work();
  RunEnded Conduct();
  absl::Status WaitForWorker();
  void Tell(RunNews news);

  const std::unique_ptr<Client> client_;
  const v1::RunSpec spec_;
  const absl::Duration worker_timeout_;
  const UniqueFd event_;
  Cancellation cancellation_;
  Mutex mutex_;
  std::deque<RunNews> news_ ABSL_GUARDED_BY(mutex_);
  // Last: it uses all of the above.
  std::thread thread_;
};

}  // namespace espalier::cli
