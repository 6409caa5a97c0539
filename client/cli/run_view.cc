#include "client/cli/run_view.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/lib/client.h"
#include "proto/support/errors.h"

namespace espalier::cli {
namespace {

bool Ended(const v1::Operation& operation) {
  return operation.state() != v1::Operation::STATE_RUNNING;
}

bool HadEnded(const v1::Run& run, const std::string& name) {
  return std::any_of(run.operations().begin(), run.operations().end(),
                     [&](const v1::Operation& o) { return o.name() == name && Ended(o); });
}

}  // namespace

std::string StateName(v1::Run::State state) {
  return std::string(absl::StripPrefix(v1::Run::State_Name(state), "STATE_"));
}

std::string PhaseLabel(const std::string& phase, const v1::Run& run) {
  if (phase == "count" || phase == "vote") return "";
  if (phase == "gather") return "report";
  const bool of_update = phase == "select" || phase == "verify";
  if (!of_update || run.updates_total() <= 1) return phase;
  return absl::StrCat(phase, " ", std::min(run.updates_done() + 1, run.updates_total()), "/", run.updates_total());
}

bool IsHeld(const v1::Run& run) {
  return run.state() == v1::Run::STATE_RUNNING && absl::StartsWith(run.state_reason(), "held");
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
  const v1::Run before = run_;
  if (event.has_run()) run_ = event.run();
  if (event.has_progress()) {
    const v1::RunProgress& progress = event.progress();
    const std::string label = PhaseLabel(progress.phase(), run_);
    // Of a held run others ask for reports, and nothing tells here when those end.
    if (!label.empty() && !(held_ && label == "report"))
      progress_.Step(label, progress.done(), progress.total(), progress.unit());
    return;
  }
  const bool began = run_.state() != before.state();
  if (event.type() == "ReportMade") progress_.End(true);
  if (event.type() == "OperationEnded") {
    const auto& all = run_.operations();
    progress_.End(std::none_of(all.begin(), all.end(), [&](const v1::Operation& o) {
      return Ended(o) && o.state() != v1::Operation::STATE_SUCCEEDED && !HadEnded(before, o.name());
    }));
  }
  switch (run_.state()) {
    case v1::Run::STATE_QUEUED:
      if (show_queue_ && began && !run_.state_reason().empty())
        progress_.Line(absl::StrCat(run_.name(), " waits: ", run_.state_reason()));
      return;
    case v1::Run::STATE_STARTING:
      if (began) progress_.Step("load", 0, 0, "");
      return;
    case v1::Run::STATE_RUNNING:
      if (IsHeld(run_) && run_.state_reason() != before.state_reason()) {
        held_ = true;
        progress_.End(!run_.has_error());
        if (run_.has_error()) progress_.Line(run_.error().message());
        progress_.Line(absl::StrCat(run_.name(), " is ", run_.state_reason()));
      }
      if (!began && run_.updates_done() == before.updates_done()) return;
      progress_.End(true);
      if (run_.updates_done() < run_.updates_total()) progress_.Step(PhaseLabel("select", run_), 0, 0, "");
      return;
    case v1::Run::STATE_SAVING:
      if (began) progress_.Step("save", 0, 0, "");
      return;
    case v1::Run::STATE_CANCELLING:
    case v1::Run::STATE_RECOVERING:
      if (!began) return;
      progress_.End(false);
      progress_.Line(absl::StrCat(run_.name(), " is ", StateName(run_.state()), ": ", run_.state_reason()));
      return;
    default:
      if (IsTerminal(run_.state())) progress_.End(run_.state() == v1::Run::STATE_SUCCEEDED);
  }
}

}  // namespace espalier::cli
