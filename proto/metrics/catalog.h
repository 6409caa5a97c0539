#pragma once

// Every metric of our programs: the one list of which the registry, docs/metrics.md and the tests are made. Names follow
// Prometheus' conventions: base units, `_total` on counters; those of gRPC are the ones that dashboards of the ecosystem know.
// Labels are bounded: states, outcomes, operations and reasons are enumerations, workers as many as a fleet has, runs only
// live ones. No label ever holds a tensor, a path or a message.

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier {

enum class MetricType { kCounter, kGauge, kHistogram };

struct MetricSpec {
  MetricType type = MetricType::kGauge;
  absl::string_view name;
  // Comma-separated; empty for none.
  absl::string_view labels;
  absl::string_view help;
  bool coordinator = true;
  bool worker = true;
  // Upper bounds of a histogram, ascending.
  absl::Span<const double> buckets = {};
};

namespace metric {

// In both programs.
extern const MetricSpec kBuildInfo;
extern const MetricSpec kPhaseSeconds;
extern const MetricSpec kCommands;
extern const MetricSpec kCommandSeconds;
extern const MetricSpec kCollectiveBytes;
extern const MetricSpec kVerificationFailures;

// Of the coordinator.
extern const MetricSpec kRuns;
extern const MetricSpec kRunsEnded;
extern const MetricSpec kRunFailures;
extern const MetricSpec kRunSparsity;
extern const MetricSpec kRunZeros;
extern const MetricSpec kRunMasked;
extern const MetricSpec kRunUpdates;
extern const MetricSpec kRunProgressTimestamp;
extern const MetricSpec kMaskUpdates;
extern const MetricSpec kCheckpoints;
extern const MetricSpec kCheckpointBytes;
extern const MetricSpec kWorkers;
extern const MetricSpec kWorkerHeartbeatTimestamp;
extern const MetricSpec kWorkersLost;
extern const MetricSpec kMessagesRefused;
extern const MetricSpec kJournalWrites;
extern const MetricSpec kJournalSeconds;
extern const MetricSpec kGrpcStarted;
extern const MetricSpec kGrpcHandled;
extern const MetricSpec kGrpcSeconds;

// Of workers.
extern const MetricSpec kConnected;
extern const MetricSpec kSessions;
extern const MetricSpec kShardBytes;
extern const MetricSpec kMaskVersion;

}  // namespace metric

// All of the above, in the order of the documentation.
absl::Span<const MetricSpec* const> MetricCatalog();

}  // namespace espalier
