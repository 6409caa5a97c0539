#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "proto/metrics/metrics.h"
#include "proto/support/clock.h"
#include "server/run/observer.h"

namespace espalier {

// The coordinator's figures of runs, commands and workers. On the event loop only; `metrics` may be read by others.
class CoordinatorMetrics final : public Observer {
 public:
  // Live runs that have series of their own; the others are only counted.
  static constexpr size_t kMaxRuns = 32;

  // Both outlive it.
  CoordinatorMetrics(Metrics& metrics, const Clock& clock);

  void OnRun(const v1::Run& run) override;
  void OnRunChanged(const v1::Run& before, const v1::Run& after, absl::string_view event) override;
  void OnRunForgotten(const v1::Run& run) override;
  void OnMasksCommitted(const v1::Run& run, int64_t wanted, int64_t elements) override;
  void OnCommand(absl::string_view operation, absl::Duration elapsed, absl::Span<const v1::Ack* const> acks,
                 const absl::Status& status) override;
  void OnWorkers(const std::vector<v1::Worker>& workers) override;
  void OnWorkerLost() override;

 private:
  void CountState(v1::Run::State state, int by);
  void OnEnded(const v1::Run& run);
  // The series of one live run.
  void Show(const v1::Run& run);
  void Hide(const std::string& run);
  void ObservePhase(absl::string_view phase, double seconds);

  Metrics& metrics_;
  const Clock& clock_;
  std::map<v1::Run::State, int> runs_;
  std::set<std::string> shown_;
  std::set<std::string> workers_;                                   // with a series
  std::map<std::pair<std::string, std::string>, int64_t> refused_;  // by worker and incarnation
};

}  // namespace espalier
