#include "server/recipe/planner.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/recipe/test_model.h"

namespace espalier {
namespace {

using ::espalier::testing::AddParameter;
using ::espalier::testing::HasReason;
using ::espalier::testing::IsOk;
using ::espalier::testing::SmallModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<v1::Plan> Plan(absl::string_view recipe, const v1::ModelDescription& model = SmallModel(),
                              PlanOptions options = {}) {
  return MakePlan(recipe, "r.yaml", model, options);
}

TEST(PlannerTest, PlansTheFirstRecipe) {
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan(R"(prune_stage:
  run_type: oneshot
  pruning_modifiers:
    MagnitudePruningModifier:
      targets: ["re:.*_proj.weight"]
      final_sparsity: 0.5
)"));
  ASSERT_EQ(plan.stages_size(), 1);
  EXPECT_EQ(plan.stages(0).name(), "prune_stage");
  ASSERT_EQ(plan.updates_size(), 1);
  EXPECT_EQ(plan.updates(0).sparsity(), "0.5");
  EXPECT_THAT(plan.updates(0).targets(), ElementsAre(64, 32, 64, 32));
  EXPECT_THAT(plan.modifiers(0).parameters(),
              ElementsAre("model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight",
                          "model.layers.1.mlp.up_proj.weight", "model.layers.1.self_attn.q_proj.weight"));
  EXPECT_THAT(plan.warnings(), IsEmpty());
  EXPECT_EQ(plan.pruned_parameters(), 4);
  EXPECT_EQ(plan.pruned_elements(), 384);
  EXPECT_EQ(plan.model_parameters(), 10);
}

}  // namespace
}  // namespace espalier
