#pragma once

#include <string>
#include <vector>

#include "espalier/v1/plan.pb.h"
#include "espalier/v1/report.pb.h"
#include "espalier/v1/resources.pb.h"

namespace espalier {

// What a coordinator knows at one moment, for people to look at.
struct Snapshot {
  std::vector<v1::Worker> workers;
  // Newest first, at most 50, without their plans.
  std::vector<v1::Run> runs;
  // Of all runs, whether listed or not.
  size_t runs_in_all = 0;
  bool draining = false;

  // The run that was asked for, or the newest; empty name: none.
  v1::Run run;
  v1::PlanSummary plan;
  // The last that was told while it works; empty phase: none.
  v1::RunProgress progress;
  // Of its last report, by name; empty before.
  std::vector<v1::ParameterSparsity> rows;
};

}  // namespace espalier
