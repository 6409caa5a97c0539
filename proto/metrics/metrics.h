#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/metrics/catalog.h"

namespace espalier {

// Content type of Metrics::Text.
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

// Values of one program's metrics. Every family of the catalog that the program has is there from the start, and those
// without labels are at 0. Thread-safe; reading the text waits for nothing but short locks of the registry.
class Metrics {
 public:
  enum class Program { kCoordinator, kWorker };
  // Names and values, in the order of the spec's labels.
  using Values = std::vector<std::string>;

  explicit Metrics(Program program);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // `values` are those of the spec's labels, in their order. The metric is one of this program's.
  void Count(const MetricSpec& counter, const Values& values = {}, double by = 1);
  void Set(const MetricSpec& gauge, double value, const Values& values = {});
  void Observe(const MetricSpec& histogram, double value, const Values& values = {});
  // Makes the series, at 0, before anything has happened: rates need a first value.
  void Create(const MetricSpec& spec, const Values& values);
  // Forgets a series of a gauge.
  void Remove(const MetricSpec& gauge, const Values& values);

  // Everything, with the process's own figures, in Prometheus' text format 0.0.4.
  std::string Text() const;

 private:
  struct Registry;
  const std::unique_ptr<Registry> registry_;
};

}  // namespace espalier
