#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cli/progress.h"
#include "espalier/v1/resources.pb.h"

namespace espalier::cli {

// Shows the events of one run as progress: load, select and verify of each update, report, save. States open and close
// phases too, since a short one may end before any progress of it is told. Not thread-safe.
class RunView {
 public:
  // `show_queue`: say what a queued run waits for.
  RunView(Progress& progress, bool show_queue) : progress_(progress), show_queue_(show_queue) {}

  void OnEvent(const v1::RunEvent& event);
  // The run as of the last event that carried it.
  const v1::Run& run() const { return run_; }

 private:
  Progress& progress_;
  const bool show_queue_;
  v1::Run run_;
  bool held_ = false;
};

// "load", "select 2/3": a phase in words, with the update where the recipe has several. Empty for phases that are not
// shown (count, vote).
std::string PhaseLabel(const std::string& phase, const v1::Run& run);

// All stages are done, and the run waits for FinishRun.
bool IsHeld(const v1::Run& run);

// What a terminal run means to its caller: OK where it succeeded, its error otherwise.
absl::Status OutcomeOf(const v1::Run& run);

// RUNNING, SUCCEEDED ...
std::string StateName(v1::Run::State state);

}  // namespace espalier::cli
