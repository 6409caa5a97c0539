#include "proto/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <sstream>

#include "absl/strings/str_split.h"
#include "proto/metrics/process.h"

namespace espalier {
namespace {

template <typename T>
using Families = std::map<absl::string_view, prometheus::Family<T>*>;

prometheus::Labels LabelsOf(const MetricSpec& spec, const Metrics::Values& values) {
  prometheus::Labels labels;
  size_t i = 0;
  for (const absl::string_view name : absl::StrSplit(spec.labels, ',', absl::SkipEmpty())) {
    labels.emplace(std::string(name), i < values.size() ? values[i] : "");
    ++i;
  }
  return labels;
}

}  // namespace

struct Metrics::Registry {
  prometheus::Registry all;
  Families<prometheus::Counter> counters;
  Families<prometheus::Gauge> gauges;
  Families<prometheus::Histogram> histograms;

  prometheus::Counter& Counter(const MetricSpec& spec, const Values& values) {
    return counters.at(spec.name)->Add(LabelsOf(spec, values));
  }
  prometheus::Gauge& Gauge(const MetricSpec& spec, const Values& values) {
    return gauges.at(spec.name)->Add(LabelsOf(spec, values));
  }
  prometheus::Histogram& Histogram(const MetricSpec& spec, const Values& values) {
    return histograms.at(spec.name)->Add(
        LabelsOf(spec, values), prometheus::Histogram::BucketBoundaries(spec.buckets.begin(), spec.buckets.end()));
  }
};

Metrics::Metrics(Program program) : registry_(std::make_unique<Registry>()) {
  for (const MetricSpec* spec : MetricCatalog()) {
    if (!(program == Program::kCoordinator ? spec->coordinator : spec->worker)) continue;
    const std::string name(spec->name), help(spec->help);
    switch (spec->type) {
      case MetricType::kCounter:
        registry_->counters[spec->name] = &prometheus::BuildCounter().Name(name).Help(help).Register(registry_->all);
        break;
      case MetricType::kGauge:
        registry_->gauges[spec->name] = &prometheus::BuildGauge().Name(name).Help(help).Register(registry_->all);
        break;
      case MetricType::kHistogram:
        registry_->histograms[spec->name] =
            &prometheus::BuildHistogram().Name(name).Help(help).Register(registry_->all);
        break;
    }
    if (spec->labels.empty()) Create(*spec, {});
  }
  Set(metric::kBuildInfo, 1, {program == Program::kCoordinator ? "coordinator" : "worker", ESPALIER_VERSION});
}

Metrics::~Metrics() = default;

void Metrics::Count(const MetricSpec& counter, const Values& values, double by) {
  registry_->Counter(counter, values).Increment(by);
}

void Metrics::Set(const MetricSpec& gauge, double value, const Values& values) {
  registry_->Gauge(gauge, values).Set(value);
}

void Metrics::Observe(const MetricSpec& histogram, double value, const Values& values) {
  registry_->Histogram(histogram, values).Observe(value);
}

void Metrics::Create(const MetricSpec& spec, const Values& values) {
  switch (spec.type) {
    case MetricType::kCounter:
      registry_->Counter(spec, values);
      break;
    case MetricType::kGauge:
      registry_->Gauge(spec, values);
      break;
    case MetricType::kHistogram:
      registry_->Histogram(spec, values);
      break;
  }
}

void Metrics::Remove(const MetricSpec& gauge, const Values& values) {
  registry_->gauges.at(gauge.name)->Remove(&registry_->Gauge(gauge, values));
}

std::string Metrics::Text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, registry_->all.Collect());
  return out.str() + ProcessMetrics();
}

}  // namespace espalier
