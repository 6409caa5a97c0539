#include "server/metrics/coordinator_metrics.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/unit/server/run/cluster.h"

namespace espalier {
namespace {

using testing::Cluster;
using ::testing::Contains;
using testing::FailedAck;
using testing::FakeWorker;
using ::testing::HasSubstr;
using ::testing::Not;

class CoordinatorMetricsTest : public ::testing::Test {
 protected:
  CoordinatorMetricsTest() {
    cluster_.options.observer = &observer_;
    cluster_.Boot();
  }
  ~CoordinatorMetricsTest() override { cluster_.coordinator.reset(); }

  std::vector<std::string> Lines() const { return absl::StrSplit(metrics_.Text(), '\n'); }
  // "name{labels}" has this value.
  void Expect(const std::string& series, double value) {
    EXPECT_THAT(Lines(), Contains(absl::StrCat(series, " ", value)));
  }
  v1::RunSpec Spec(int world_size) {
    v1::RunSpec spec = cluster_.Spec(world_size);
    spec.set_output_path("/outputs/one");
    return spec;
  }

  Cluster cluster_;
  Metrics metrics_{Metrics::Program::kCoordinator};
  CoordinatorMetrics observer_{metrics_, cluster_.clock};
};

TEST_F(CoordinatorMetricsTest, ARunFromQueueToEnd) {
  Expect("espalier_runs{state=\"QUEUED\"}", 0);
  cluster_.AddWorkers(1);
  const std::string name = cluster_.Create(Spec(2));
  Expect("espalier_runs{state=\"QUEUED\"}", 1);
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr(name)));
  cluster_.AddWorkers(2);
  ASSERT_EQ(cluster_.Get(name).state(), v1::Run::STATE_SUCCEEDED);
  Expect("espalier_runs{state=\"QUEUED\"}", 0);
  Expect("espalier_runs{state=\"SUCCEEDED\"}", 1);
  Expect("espalier_runs_ended_total{state=\"SUCCEEDED\"}", 1);
  Expect("espalier_runs_ended_total{state=\"FAILED\"}", 0);
  Expect("espalier_mask_updates_total{outcome=\"committed\"}", 1);
  Expect("espalier_checkpoints_total{outcome=\"published\"}", 1);
  Expect("espalier_phase_duration_seconds_count{phase=\"load\"}", 1);
  Expect("espalier_phase_duration_seconds_count{phase=\"select\"}", 1);
  Expect("espalier_phase_duration_seconds_count{phase=\"verify\"}", 1);
  Expect("espalier_phase_duration_seconds_count{phase=\"publish\"}", 1);
  Expect("espalier_phase_duration_seconds_count{phase=\"gather\"}", 0);
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr(name))) << "series of a run that ended";
  v1::DeleteRunRequest request;
  request.set_name(name);
  ASSERT_TRUE(cluster_.Call(&Coordinator::DeleteRun, request).ok());
  Expect("espalier_runs{state=\"SUCCEEDED\"}", 0);
}

TEST_F(CoordinatorMetricsTest, ALiveRunShowsItsSparsity) {
  cluster_.AddWorkers(2);
  const std::string name = cluster_.CreateHeld(2);
  const v1::Run run = cluster_.Get(name);
  ASSERT_TRUE(run.has_sparsity());
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr(absl::StrCat("espalier_run_zeros{run=\"", name, "\"} ", run.sparsity().sparse(), "\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("espalier_run_masked{run=\"", name, "\"} ", run.sparsity().masked(), "\n")));
  const double wanted = static_cast<double>(run.sparsity().masked()) / static_cast<double>(run.sparsity().total());
  bool found = false;
  for (const std::string& line : Lines()) {
    if (!absl::StartsWith(line, "espalier_run_sparsity_ratio{") || !absl::StrContains(line, "\"wanted\"")) continue;
    found = true;
    EXPECT_DOUBLE_EQ(std::stod(line.substr(line.rfind(' '))), wanted);
  }
  EXPECT_TRUE(found);
  // A held run waits for people: nothing is expected to happen.
  EXPECT_THAT(text, Not(HasSubstr("espalier_run_last_progress_timestamp_seconds{")));
  v1::CancelRunRequest cancel;
  cancel.set_name(name);
  ASSERT_TRUE(cluster_.Call(&Coordinator::CancelRun, cancel).ok());
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr(name)));
  Expect("espalier_runs_ended_total{state=\"CANCELLED\"}", 1);
}

TEST_F(CoordinatorMetricsTest, AtMost32RunsHaveSeries) {
  const int more = CoordinatorMetrics::kMaxRuns + 5;
  cluster_.AddWorkers(more);
  std::vector<std::string> names;
  for (int i = 0; i < more; ++i) names.push_back(cluster_.CreateHeld(1));
  const auto shown = [&] {
    size_t count = 0;
    for (const std::string& line : Lines()) count += absl::StartsWith(line, "espalier_run_zeros{") ? 1 : 0;
    return count;
  };
  EXPECT_EQ(shown(), CoordinatorMetrics::kMaxRuns);
  Expect("espalier_runs{state=\"RUNNING\"}", more);
  v1::CancelRunRequest cancel;
  cancel.set_name(names[0]);
  ASSERT_TRUE(cluster_.Call(&Coordinator::CancelRun, cancel).ok());
  EXPECT_EQ(shown(), CoordinatorMetrics::kMaxRuns - 1);
}

TEST_F(CoordinatorMetricsTest, AFailureIsCountedByItsReason) {
  cluster_.AddWorkers(2);
  cluster_.worker("w1").On("UpdateMasks", [](const v1::Command& command, FakeWorker::Messages& answers) {
    answers = {FailedAck(command, v1::ERROR_REASON_MASK_NOT_EFFECTIVE, "parameter a.weight: 3 non-zeros")};
  });
  const std::string name = cluster_.Create(Spec(2));
  cluster_.Advance(absl::Seconds(2));
  ASSERT_EQ(cluster_.Get(name).state(), v1::Run::STATE_FAILED);
  Expect("espalier_runs_ended_total{state=\"FAILED\"}", 1);
  Expect("espalier_run_failures_total{reason=\"MASK_NOT_EFFECTIVE\"}", 1);
  Expect("espalier_verification_failures_total{reason=\"MASK_NOT_EFFECTIVE\"}", 1);
  Expect("espalier_verification_failures_total{reason=\"STATE_DIVERGED\"}", 0);
  Expect("espalier_mask_updates_total{outcome=\"failed\"}", 1);
  Expect("espalier_mask_updates_total{outcome=\"committed\"}", 0);
  Expect("espalier_phase_duration_seconds_count{phase=\"select\"}", 0);
}

TEST_F(CoordinatorMetricsTest, WorkersByState) {
  cluster_.AddWorkers(3);
  cluster_.Advance(absl::Seconds(2));
  Expect("espalier_workers{state=\"IDLE\"}", 3);
  EXPECT_THAT(metrics_.Text(), HasSubstr("espalier_worker_last_heartbeat_timestamp_seconds{worker=\"workers/w1\"} "));
  cluster_.Kill("w1");
  cluster_.Advance(absl::Seconds(2));
  Expect("espalier_workers{state=\"SUSPECT\"}", 1);
  Expect("espalier_workers_lost_total", 0);
  cluster_.Advance(absl::Seconds(15));
  Expect("espalier_workers{state=\"IDLE\"}", 2);
  Expect("espalier_workers{state=\"LOST\"}", 1);
  Expect("espalier_workers_lost_total", 1);
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("worker=\"workers/w1\"")));
}

TEST_F(CoordinatorMetricsTest,
       RunsOfTheJournalAreKnownAfterARestart) {  // known-bugs 70: gauges stand, counters begin anew
  cluster_.AddWorkers(1);
  cluster_.Create(Spec(1));
  Metrics fresh(Metrics::Program::kCoordinator);
  CoordinatorMetrics again(fresh, cluster_.clock);
  cluster_.options.observer = &again;
  cluster_.Restart();
  EXPECT_THAT(fresh.Text(), HasSubstr("espalier_runs{state=\"SUCCEEDED\"} 1\n"));
  EXPECT_THAT(fresh.Text(), HasSubstr("espalier_runs_ended_total{state=\"SUCCEEDED\"} 0\n"));
  cluster_.options.observer = nullptr;
  cluster_.Boot();
}

}  // namespace
}  // namespace espalier
