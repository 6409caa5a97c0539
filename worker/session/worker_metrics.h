#pragma once

#include "absl/time/time.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/metrics/metrics.h"

namespace espalier {

// A worker's figures. Thread-safe.
class WorkerMetrics {
 public:
  // `metrics` outlives it.
  explicit WorkerMetrics(Metrics& metrics);

  void OnWelcome();
  void OnSessionEnded();
  // A command was executed; `ack` is what is answered.
  void OnCommand(const v1::Command& command, const v1::Ack& ack, absl::Duration elapsed);

 private:
  Metrics& metrics_;
};

}  // namespace espalier
