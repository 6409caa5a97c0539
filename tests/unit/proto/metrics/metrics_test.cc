#include "proto/metrics/metrics.h"

#include <locale.h>

#include <regex>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/support/test_dir.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// The samples of one metric, without comments.
std::vector<std::string> Samples(const Metrics& metrics, absl::string_view name) {
  std::vector<std::string> out;
  for (const absl::string_view line : absl::StrSplit(metrics.Text(), '\n')) {
    if (absl::StartsWith(line, name)) out.emplace_back(line);
  }
  return out;
}

TEST(MetricCatalogTest, NamesFollowTheConventions) {
  std::set<absl::string_view> names;
  for (const MetricSpec* spec : MetricCatalog()) {
    const std::string name(spec->name);
    EXPECT_TRUE(names.insert(spec->name).second) << name;
    EXPECT_TRUE(absl::StartsWith(name, "espalier_") || absl::StartsWith(name, "grpc_server_")) << name;
    EXPECT_TRUE(std::regex_match(name, std::regex("[a-z]+(_[a-z]+)+"))) << name;
    EXPECT_EQ(absl::EndsWith(name, "_total"), spec->type == MetricType::kCounter) << name;
    EXPECT_EQ(!spec->buckets.empty(), spec->type == MetricType::kHistogram) << name;
    EXPECT_EQ(absl::EndsWith(name, "_seconds"),
              spec->type == MetricType::kHistogram || absl::EndsWith(name, "_timestamp_seconds"))
        << name;
    EXPECT_THAT(std::string(spec->help), EndsWith(".")) << name;
    EXPECT_TRUE(spec->coordinator || spec->worker) << name;
    for (const absl::string_view label : absl::StrSplit(spec->labels, ',', absl::SkipEmpty())) {
      EXPECT_TRUE(std::regex_match(std::string(label), std::regex("[a-z]+(_[a-z]+)*"))) << name;
    }
  }
}

// docs/metrics.md is made of the catalog.
TEST(MetricCatalogTest, TheDocumentedTableIsTheCatalog) {
  std::string table = "| metric | type | labels | of | |\n|---|---|---|---|---|\n";
  for (const MetricSpec* spec : MetricCatalog()) {
    const char* type = spec->type == MetricType::kCounter ? "counter"
                       : spec->type == MetricType::kGauge ? "gauge"
                                                          : "histogram";
    absl::StrAppend(&table, "| `", spec->name, "` | ", type, " | ", absl::StrReplaceAll(spec->labels, {{",", ", "}}),
                    " | ", spec->coordinator ? "coordinator" : "", spec->coordinator && spec->worker ? ", " : "",
                    spec->worker ? "worker" : "", " | ", spec->help, " |\n");
  }
  EXPECT_THAT(testing::ReadFile(ESPALIER_SOURCE_DIR "/docs/metrics.md"), HasSubstr("\n\n" + table + "\n"))
      << "put this table into docs/metrics.md:\n"
      << table;
}

TEST(MetricsTest, WhatHasNoLabelsIsThereFromTheStart) {
  const Metrics coordinator(Metrics::Program::kCoordinator), worker(Metrics::Program::kWorker);
  EXPECT_EQ(Samples(coordinator, "espalier_workers_lost_total"),
            std::vector<std::string>{"espalier_workers_lost_total 0"});
  EXPECT_EQ(Samples(worker, "espalier_worker_connected"), std::vector<std::string>{"espalier_worker_connected 0"});
  EXPECT_THAT(Samples(worker, "espalier_runs"), ::testing::IsEmpty());
  EXPECT_THAT(coordinator.Text(),
              AllOf(HasSubstr("espalier_build_info{program=\"coordinator\",version=\""),
                    HasSubstr("\nprocess_resident_memory_bytes "), HasSubstr("\nprocess_start_time_seconds 1")));
}

TEST(MetricsTest, CountsSetsObservesAndForgets) {
  Metrics metrics(Metrics::Program::kCoordinator);
  metrics.Create(metric::kRunsEnded, {"FAILED"});
  EXPECT_EQ(Samples(metrics, "espalier_runs_ended_total"),
            std::vector<std::string>{"espalier_runs_ended_total{state=\"FAILED\"} 0"});
  metrics.Count(metric::kRunsEnded, {"FAILED"});
  metrics.Count(metric::kRunsEnded, {"FAILED"}, 2);
  EXPECT_EQ(Samples(metrics, "espalier_runs_ended_total"),
            std::vector<std::string>{"espalier_runs_ended_total{state=\"FAILED\"} 3"});
  metrics.Set(metric::kRunSparsity, 0.5, {"runs/a", "wanted"});
  EXPECT_THAT(Samples(metrics, "espalier_run_sparsity_ratio").at(0),
              AllOf(HasSubstr("run=\"runs/a\""), HasSubstr("kind=\"wanted\""), EndsWith("} 0.5")));
  metrics.Remove(metric::kRunSparsity, {"runs/a", "wanted"});
  EXPECT_THAT(Samples(metrics, "espalier_run_sparsity_ratio"), ::testing::IsEmpty());
  metrics.Observe(metric::kJournalSeconds, 0.003);
  EXPECT_THAT(metrics.Text(), AllOf(HasSubstr("espalier_journal_write_duration_seconds_bucket{le=\"0.002\"} 0\n"),
                                    HasSubstr("espalier_journal_write_duration_seconds_bucket{le=\"0.004\"} 1\n"),
                                    HasSubstr("espalier_journal_write_duration_seconds_count 1\n")));
}

TEST(MetricsTest, LabelsAreEscaped) {  // known-bugs 71
  Metrics metrics(Metrics::Program::kCoordinator);
  metrics.Set(metric::kWorkerHeartbeatTimestamp, 1, {"a\"b\\c\nd"});
  EXPECT_EQ(Samples(metrics, "espalier_worker_last_heartbeat"),
            std::vector<std::string>{"espalier_worker_last_heartbeat_timestamp_seconds{worker=\"a\\\"b\\\\c\\nd\"} 1"});
}

TEST(MetricsTest, TheLocaleDoesNotMatter) {  // known-bugs 72
  Metrics metrics(Metrics::Program::kCoordinator);
  metrics.Set(metric::kRunSparsity, 0.5, {"runs/a", "measured"});
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
  const std::string text = metrics.Text();
  std::locale::global(before);
  EXPECT_THAT(text, HasSubstr("} 0.5\n"));
  EXPECT_THAT(text, Not(HasSubstr("0,5")));
  EXPECT_TRUE(std::regex_search(text, std::regex("\nprocess_resident_memory_bytes [0-9]+\n")));
}

TEST(MetricsTest, ManyThreadsAtOnce) {
  Metrics metrics(Metrics::Program::kCoordinator);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics, t] {
      for (int i = 0; i < 200; ++i) {
        metrics.Count(metric::kRunsEnded, {"FAILED"});
        metrics.Set(metric::kRunZeros, i, {absl::StrCat("runs/", t)});
        metrics.Remove(metric::kRunZeros, {absl::StrCat("runs/", t)});
        if (i % 50 == 0) {
          EXPECT_FALSE(metrics.Text().empty());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Samples(metrics, "espalier_runs_ended_total"),
            std::vector<std::string>{"espalier_runs_ended_total{state=\"FAILED\"} 800"});
}

}  // namespace
}  // namespace espalier
