// What others read out of a plan: summary, pages, specs of updates, and who may run it.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "server/recipe/planner.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/recipe/test_model.h"

namespace espalier {
namespace {

using ::espalier::testing::AddParameter;
using ::espalier::testing::HasReason;
using ::espalier::testing::SmallModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Plan Plan(absl::string_view recipe, PlanOptions options = {}) {
  auto plan = MakePlan(recipe, "r.yaml", SmallModel(), options);
  EXPECT_OK(plan);
  return plan.value_or(v1::Plan());
}

constexpr char kThree[] = R"(a_stage:
  run_type: oneshot
  modifiers:
    - MagnitudePruningModifier: {targets: "re:.*up", sparsity: 0.5, ignore: [nothing]}
    - GlobalMagnitudePruningModifier: {targets: "re:.*q_proj", sparsity: 0.25, allow_empty: true, monotone: false}
b_stage:
  run_type: oneshot
  modifiers:
    - MagnitudePruningModifier: {targets: model.layers.0.mlp.up_proj, mask_structure: 1:4, nm_counts: zeroed}
)";

TEST(PlanViewsTest, SummaryHasAllButWhatGrows) {
  const v1::Plan plan = Plan(kThree);
  const v1::PlanSummary summary = SummarizePlan(plan);
  EXPECT_EQ(summary.stages_size(), 2);
  ASSERT_EQ(summary.modifiers_size(), 3);
  ASSERT_EQ(summary.updates_size(), 3);
  for (int i = 0; i < 3; ++i) {
    v1::PlannedModifier modifier = plan.modifiers(i);
    modifier.clear_parameters();
    modifier.clear_left_out();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(modifier, summary.modifiers(i)));
    v1::PlannedUpdate update = plan.updates(i);
    update.clear_targets();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(update, summary.updates(i)));
  }
  EXPECT_EQ(summary.warnings_size(), 1);
  EXPECT_EQ(summary.pruned_parameters(), plan.pruned_parameters());
  EXPECT_EQ(summary.pruned_elements(), plan.pruned_elements());
  EXPECT_EQ(summary.model_parameters(), plan.model_parameters());
  EXPECT_EQ(summary.model_elements(), plan.model_elements());
  EXPECT_EQ(summary.recipe_crc32(), plan.recipe_crc32());
}

TEST(PlanViewsTest, SummaryKeepsAHundredWarnings) {
  v1::Plan plan;
  for (int i = 0; i < 100; ++i) plan.add_warnings(absl::StrCat("w", i));
  EXPECT_EQ(SummarizePlan(plan).warnings(99), "w99");
  for (int i = 100; i < 250; ++i) plan.add_warnings(absl::StrCat("w", i));
  const v1::PlanSummary summary = SummarizePlan(plan);
  ASSERT_EQ(summary.warnings_size(), 100);
  EXPECT_EQ(summary.warnings(98), "w98");
  EXPECT_EQ(summary.warnings(99), "and 151 more");
}

std::vector<v1::PlannedParameter> All(const v1::Plan& plan, const v1::ModelDescription& model) {
  return PlannedParameters(plan, model, 0, CountPlannedParameters(plan));
}

TEST(PlanViewsTest, RangesOfParametersAreThoseOfTheWhole) {
  const v1::Plan plan = Plan(kThree);
  const std::vector<v1::PlannedParameter> all = All(plan, SmallModel());
  const int64_t count = CountPlannedParameters(plan);
  ASSERT_EQ(count, 5);
  for (int64_t begin = 0; begin <= count; ++begin) {
    for (int64_t end = begin; end <= count; ++end) {
      const std::vector<v1::PlannedParameter> part = PlannedParameters(plan, SmallModel(), begin, end);
      ASSERT_EQ(part.size(), static_cast<size_t>(end - begin));
      for (size_t i = 0; i < part.size(); ++i) {
        EXPECT_EQ(part[i].SerializeAsString(), all[static_cast<size_t>(begin) + i].SerializeAsString());
      }
    }
  }
}

TEST(PlanViewsTest, ParametersComeByModifierAndName) {
  std::vector<std::string> seen;
  for (const v1::PlannedParameter& entry : All(Plan(kThree), SmallModel())) {
    EXPECT_EQ(entry.dtype(), v1::DTYPE_BF16);
    EXPECT_EQ(entry.shape_size(), 2);
    seen.push_back(absl::StrCat(entry.modifier(), " ", entry.name(), " ", entry.numel(), " ", entry.final_target()));
  }
  EXPECT_THAT(
      seen,
      ElementsAre("0 model.layers.0.mlp.up_proj.weight 128 64", "0 model.layers.1.mlp.up_proj.weight 128 64",
                  "1 model.layers.0.self_attn.q_proj.weight 64 -1", "1 model.layers.1.self_attn.q_proj.weight 64 -1",
                  "2 model.layers.0.mlp.up_proj.weight 128 -1"));
  EXPECT_EQ(All(Plan(kThree), {})[0].numel(), 0);
}

TEST(PlanViewsTest, FinalTargetIsThatOfTheLastUpdate) {
  PlanOptions options;
  options.worker_kind = v1::WORKER_KIND_ATTACHED;
  const v1::Plan plan =
      Plan("modifiers:\n  MagnitudePruningModifier: {targets: lm_head, final_sparsity: 0.75, end: 5steps}\n", options);
  EXPECT_EQ(All(plan, SmallModel())[0].final_target(), 192);
}

TEST(PlanViewsTest, SpecsOfUpdates) {
  const v1::Plan plan = Plan(kThree);
  const v1::UpdateSpec tensor = SpecOfUpdate(plan, 0);
  EXPECT_EQ(tensor.version(), 1);
  EXPECT_EQ(tensor.method(), v1::SELECTION_METHOD_MAGNITUDE);
  EXPECT_EQ(tensor.rule(), v1::SELECTION_RULE_EXACT);
  EXPECT_TRUE(tensor.monotone());
  EXPECT_THAT(tensor.parameters(),
              ElementsAre("model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"));
  EXPECT_THAT(tensor.targets(), ElementsAre(64, 64));
  const v1::UpdateSpec global = SpecOfUpdate(plan, 1);
  EXPECT_EQ(global.version(), 2);
  EXPECT_EQ(global.method(), v1::SELECTION_METHOD_GLOBAL_MAGNITUDE);
  EXPECT_TRUE(global.allow_empty());
  EXPECT_FALSE(global.monotone());
  EXPECT_THAT(global.targets(), ElementsAre(32));
  const v1::UpdateSpec groups = SpecOfUpdate(plan, 2);
  EXPECT_EQ(groups.version(), 3);
  EXPECT_EQ(groups.method(), v1::SELECTION_METHOD_N_OF_M);
  EXPECT_EQ(groups.structure().n(), 3);
  EXPECT_EQ(groups.structure().m(), 4);
  EXPECT_THAT(groups.targets(), IsEmpty());
}

TEST(PlanViewsTest, RunsWhereItCan) {
  EXPECT_OK(CheckRunnable(Plan(kThree), v1::WORKER_KIND_CHECKPOINT));
  EXPECT_OK(CheckRunnable(Plan(kThree), v1::WORKER_KIND_ATTACHED));
  const v1::Plan train =
      Plan("t_stage:\n  run_type: train\n  modifiers: {ConstantPruningModifier: {targets: lm_head}}\n");
  const absl::Status status = CheckRunnable(train, v1::WORKER_KIND_CHECKPOINT);
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_WORKER_KIND));
  EXPECT_EQ(
      std::string(status.message()),
      "stage `t_stage`: it is a train stage, and checkpoint workers do not train; attach to the training job, or prune "
      "at once with `run_type: oneshot`");
  EXPECT_EQ(MetadataOf(status, "stage"), "t_stage");
  EXPECT_EQ(MetadataOf(status, "kind"), "checkpoint");
  EXPECT_OK(CheckRunnable(train, v1::WORKER_KIND_ATTACHED));
  for (const char* type : {"SparseGPTModifier", "WandaPruningModifier"}) {
    const v1::Plan plan =
        Plan(absl::StrCat("c_stage:\n  run_type: oneshot\n  modifiers: {", type, ": {sparsity: 0.5}}\n"));
    EXPECT_THAT(
        CheckRunnable(plan, v1::WORKER_KIND_CHECKPOINT),
        HasReason(v1::ERROR_REASON_WORKER_KIND,
                  HasSubstr(absl::StrCat("stage `c_stage`: ", type, " needs calibration data and forward passes"))));
    EXPECT_THAT(CheckRunnable(plan, v1::WORKER_KIND_ATTACHED),
                HasReason(v1::ERROR_REASON_WORKER_KIND, HasSubstr("which attached workers do not do")));
  }
}

}  // namespace
}  // namespace espalier
