#include "client/cli/run_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/lib/client.h"
#include "proto/support/errors.h"

namespace espalier::cli {

std::string StateName(v1::Run::State state) {
  return std::string(absl::StripPrefix(v1::Run::State_Name(state), "STATE_"));
}

std::string PhaseLabel(const v1::RunProgress& progress, const v1::Run& run) {
  const bool of_update = progress.phase() == "count" || progress.phase() == "select" || progress.phase() == "verify";
  if (!of_update || run.updates_total() <= 1) return progress.phase();
  return absl::StrCat(progress.phase(), " ", std::min(run.updates_done() + 1, run.updates_total()), "/",
                      run.updates_total());
}

absl::Status OutcomeOf(const v1::Run& run) {
  if (run.state() == v1::Run::STATE_SUCCEEDED) return absl::OkStatus();
  const absl::Status error = FromProto(run.error());
  if (!error.ok()) return Annotate(error, absl::StrCat(run.name(), " ", StateName(run.state()), ": "));
  return MakeError(
      v1::ERROR_REASON_INVARIANT,
      absl::StrCat(run.name(), " is ", StateName(run.state()), " and does not say why; see the coordinator's log"),
      {{"what", "no error"}, {"where", run.name()}});
}

void RunView::OnEvent(const v1::RunEvent& event) {
  const v1::Run::State before = run_.state();
  if (event.has_run()) run_ = event.run();
  if (event.has_progress()) {
    const v1::RunProgress& progress = event.progress();
    progress_.Step(PhaseLabel(progress, run_), progress.done(), progress.total(), progress.unit());
    return;
  }
  if (run_.state() == before) return;
  switch (run_.state()) {
    case v1::Run::STATE_QUEUED:
      progress_.Line(absl::StrCat(run_.name(), " waits: ", run_.state_reason()));
      return;
    case v1::Run::STATE_CANCELLING:
    case v1::Run::STATE_RECOVERING:
      progress_.End(false);
      progress_.Line(absl::StrCat(run_.name(), " is ", StateName(run_.state()), ": ", run_.state_reason()));
      return;
    default:
      if (IsTerminal(run_.state())) progress_.End(run_.state() == v1::Run::STATE_SUCCEEDED);
  }
}

}  // namespace espalier::cli
