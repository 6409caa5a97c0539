#include "server/metrics/status_page.h"

#include <thread>

#include "gmock/gmock.h"
#include "tests/unit/server/run/cluster.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using testing::Cluster;
using ::testing::HasSubstr;
using ::testing::Not;

v1::ParameterSparsity Row(const std::string& name, int64_t numel, int64_t zeros) {
  v1::ParameterSparsity row;
  row.set_name(name);
  row.set_numel(numel);
  row.set_zeros(zeros);
  row.set_masked(zeros);
  row.set_prunable(true);
  return row;
}

TEST(StatusPageTest, NothingYet) {
  const std::string page = RenderStatus({}, absl::UnixEpoch());
  EXPECT_THAT(page, AllOf(HasSubstr("espalier submit"), HasSubstr("espalier-worker"), Not(HasSubstr("<svg"))));
}

TEST(StatusPageTest, LayersInOrderAsBars) {
  Snapshot snapshot;
  snapshot.run.set_name("runs/a");
  for (const int layer : {10, 9, 0}) {
    snapshot.rows.push_back(Row("model.layers." + std::to_string(layer) + ".mlp.up_proj.weight", 1000, 500));
    snapshot.rows.push_back(Row("model.layers." + std::to_string(layer) + ".mlp.down_proj.weight", 1000, 250));
  }
  snapshot.rows.push_back(Row("lm_head.weight", 4000, 0));
  v1::ParameterSparsity norm = Row("model.norm.weight", 10, 0);
  norm.set_prunable(false);
  snapshot.rows.push_back(norm);
  const std::string page = RenderStatus(snapshot, absl::UnixEpoch());
  const size_t first = page.find("model.layers.0:"), ninth = page.find("model.layers.9:"),
               tenth = page.find("model.layers.10:");
  EXPECT_LT(first, ninth);
  EXPECT_LT(ninth, tenth);
  EXPECT_NE(tenth, std::string::npos);
  EXPECT_THAT(page, AllOf(HasSubstr("750 of 2,000 zero, 750 masked"), HasSubstr("37.50 % of 2,000"),
                          HasSubstr("0.00 % of 4,000"), HasSubstr("width=\"157.5\""), Not(HasSubstr("model.norm"))));
}

TEST(StatusPageTest, WhatUsersNamedIsEscaped) {
  const std::string evil = "<script>alert('1')</script>\"&";
  Snapshot snapshot;
  v1::Worker worker;
  worker.set_name("workers/" + evil);
  worker.set_host(evil);
  worker.set_activity(evil);
  worker.set_run("runs/" + evil);
  snapshot.workers.push_back(worker);
  v1::Run& run = snapshot.run;
  run.set_name("runs/" + evil);
  run.set_state(v1::Run::STATE_FAILED);
  run.set_model_path(evil);
  run.set_output_path(evil);
  run.set_state_reason(evil);
  run.mutable_error()->set_message(evil);
  snapshot.runs.push_back(run);
  snapshot.plan.add_stages()->set_name(evil);
  snapshot.progress.set_phase(evil);
  snapshot.progress.set_unit(evil);
  snapshot.rows.push_back(Row(evil, 10, 5));
  const std::string page = RenderStatus(snapshot, absl::UnixEpoch());
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("alert('")),
                          HasSubstr("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;")));
}

TEST(StatusPageTest, WhatARunDoesNow) {
  Snapshot snapshot;
  snapshot.run.set_name("runs/a");
  snapshot.run.set_state(v1::Run::STATE_RUNNING);
  snapshot.progress.set_phase("report");
  snapshot.progress.set_total(4);
  EXPECT_THAT(RenderStatus(snapshot, absl::UnixEpoch()), HasSubstr("report: 0 of 4"));
  snapshot.run.set_state_reason("held; `espalier finish runs/a` ends it");
  EXPECT_THAT(RenderStatus(snapshot, absl::UnixEpoch()), Not(HasSubstr("report: 0 of 4")));
}

TEST(StatusPageTest, ShowsTheRunThatIsAskedFor) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string first = cluster.Create(cluster.Spec(1));
  const std::string second = cluster.CreateHeld(1);
  EXPECT_EQ(cluster.coordinator->TakeSnapshot("").run.name(), second);
  const Snapshot asked = cluster.coordinator->TakeSnapshot(first);
  EXPECT_EQ(asked.run.name(), first);
  EXPECT_EQ(asked.runs.size(), 2u);
  EXPECT_EQ(asked.rows.size(), 3u);
  EXPECT_GT(asked.plan.pruned_elements(), 0);
  EXPECT_EQ(cluster.coordinator->TakeSnapshot("runs/none").run.name(), "");

  cluster.loop.Start();
  const HttpReply page = ServeStatus(cluster.loop, *cluster.coordinator, "x=1&run=runs%2F" + first.substr(5));
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, AllOf(HasSubstr("<h2>" + first + "</h2>"), HasSubstr("SUCCEEDED"), HasSubstr("<svg")));
  EXPECT_EQ(ServeStatus(cluster.loop, *cluster.coordinator, "run=runs%2Fnone").status, 404);
  cluster.loop.Stop();
}

}  // namespace
}  // namespace espalier
