#include "client/cli/follow.h"

#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/cli/progress.h"
#include "client/cli/run_view.h"
#include "client/cli/terminal.h"
#include "proto/support/clock.h"
#include "proto/support/errors.h"
#include "proto/support/names.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

Progress MakeProgress() {
  return Progress(std::cerr, DetectTerminal(STDERR_FILENO), [] { return SystemClock().Monotonic(); });
}

const v1::Operation* Find(const v1::Run& run, const std::string& name) {
  for (const v1::Operation& operation : run.operations()) {
    if (operation.name() == name) return &operation;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<v1::Run> FollowRun(Client& client, const std::string& name, Until until) {
  Progress progress = MakeProgress();
  RunView view(progress, /*show_queue=*/true);
  ESPALIER_RETURN_IF_ERROR(client.WatchRun(name, 0, [&](const v1::RunEvent& event) {
    view.OnEvent(event);
    if (!IsHeld(view.run())) return true;
    return until == Until::kEnded || (until == Until::kHeldAgain && !view.run().has_error());
  }));
  return client.GetRun(name);
}

absl::StatusOr<v1::Operation> FollowOperation(Client& client, const v1::Operation& operation) {
  ESPALIER_ASSIGN_OR_RETURN(const auto names, ParseOperationName(operation.name()));
  Progress progress = MakeProgress();
  v1::Operation last = operation;
  ESPALIER_RETURN_IF_ERROR(client.WatchRun(names.first, 0, [&](const v1::RunEvent& event) {
    const v1::Operation* now = Find(event.run(), operation.name());
    if (now == nullptr) return true;
    last = *now;
    progress.Step("save", last.bytes_done(), last.bytes_total(), "bytes");
    return last.state() == v1::Operation::STATE_RUNNING;
  }));
  progress.End(last.state() == v1::Operation::STATE_SUCCEEDED);
  if (last.state() == v1::Operation::STATE_RUNNING) {
    return MakeError(v1::ERROR_REASON_ILLEGAL_TRANSITION,
                     absl::StrCat(names.first, " ended before ", operation.name(), "; see `espalier runs`"),
                     {{"run", names.first}});
  }
  return last;
}

}  // namespace espalier::cli
