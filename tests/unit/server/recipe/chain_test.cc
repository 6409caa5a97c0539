// Several recipes in one plan.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/crc32.h"
#include "server/recipe/planner.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/recipe/test_model.h"

namespace espalier {
namespace {

using ::espalier::testing::HasReason;
using ::espalier::testing::IsOk;
using ::espalier::testing::SmallModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PlanOptions Attached(int64_t steps_per_epoch = 10) {
  PlanOptions options;
  options.worker_kind = v1::WORKER_KIND_ATTACHED;
  options.optimizer_steps_per_epoch = steps_per_epoch;
  return options;
}

// Recipes a.yaml, b.yaml, ...
absl::StatusOr<v1::Plan> Chain(const std::vector<std::string>& recipes, PlanOptions options = {}) {
  std::vector<v1::RecipeText> texts;
  for (const std::string& recipe : recipes) {
    v1::RecipeText& text = texts.emplace_back();
    text.set_recipe(recipe);
    text.set_recipe_name(std::string(1, static_cast<char>('a' + texts.size() - 1)) + ".yaml");
  }
  return MakePlan(texts, SmallModel(), options);
}

std::string Stage(absl::string_view run_type, absl::string_view modifier) {
  return absl::StrCat("p_stage:\n  run_type: ", run_type, "\n  modifiers:\n    ", modifier, "\n");
}

// One layer, pruned to `fields`.
std::string Magnitude(absl::string_view run_type, absl::string_view fields, int layer = 0) {
  return Stage(run_type,
               absl::StrCat("MagnitudePruningModifier: {targets: model.layers.", layer, ".mlp.up_proj, ", fields, "}"));
}

// "stage@step=sparsity" of each update.
std::vector<std::string> Updates(const v1::Plan& plan) {
  std::vector<std::string> out;
  for (const v1::PlannedUpdate& update : plan.updates()) {
    out.push_back(absl::StrCat(plan.modifiers(update.modifier()).stage(), "@", update.step(), "=", update.sparsity()));
  }
  return out;
}

TEST(ChainTest, OneShotRecipesRunOneAfterAnother) {
  const std::string first = Magnitude("oneshot", "sparsity: 0.25");
  const std::string second = Magnitude("oneshot", "sparsity: 0.5");
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Chain({first, second}));
  // The same name of a stage in each.
  ASSERT_EQ(plan.stages_size(), 2);
  EXPECT_EQ(plan.stages(0).name(), plan.stages(1).name());
  EXPECT_EQ(plan.stages(0).recipe(), 0);
  EXPECT_EQ(plan.stages(1).recipe(), 1);
  EXPECT_THAT(Updates(plan), ElementsAre("0@0=0.25", "1@0=0.5"));
  EXPECT_EQ(plan.pruned_parameters(), 1);
  EXPECT_EQ(plan.recipe_crc32(), Crc32OfTexts({first, second}));
  ASSERT_EQ(plan.then_size(), 1);
  EXPECT_EQ(plan.then(0).recipe(), second);
  EXPECT_EQ(plan.then(0).recipe_name(), "b.yaml");
}

TEST(ChainTest, OfOneIsThatRecipe) {
  const std::string text = Magnitude("oneshot", "sparsity: 0.25");
  ASSERT_OK_AND_ASSIGN(const v1::Plan chain, Chain({text}));
  ASSERT_OK_AND_ASSIGN(const v1::Plan single, MakePlan(text, "a.yaml", SmallModel(), {}));
  EXPECT_EQ(chain.SerializeAsString(), single.SerializeAsString());
}

TEST(ChainTest, VariablesBelongToOneRecipe) {
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Chain({"s: 0.25\n" + Magnitude("oneshot", "sparsity: eval(s)"),
                                                   "s: 0.75\n" + Magnitude("oneshot", "sparsity: eval(s)")}));
  EXPECT_THAT(Updates(plan), ElementsAre("0@0=0.25", "1@0=0.75"));
  EXPECT_THAT(
      Chain({"s: 0.25\n" + Magnitude("oneshot", "sparsity: eval(s)"), Magnitude("oneshot", "sparsity: eval(s)")})
          .status(),
      HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr("b.yaml:4:")));
}

// known-bugs 78: start, end, update_frequency and the steps of the schedule move together, to the bit.
TEST(ChainTest, AllTimesOfTheLaterRecipeMoveByTheEndOfTheEarlier) {
  const std::string steps =
      "init_sparsity: 0.1, final_sparsity: 0.9, start: 2steps, end: 2.5, update_frequency: 0.25, "
      "update_scheduler: multi_step, scheduler_args: {steps: [[0.7, 0.3], [12steps, 0.6]]}";
  ASSERT_OK_AND_ASSIGN(const v1::Plan alone, Chain({Magnitude("train", steps)}, Attached()));
  ASSERT_OK_AND_ASSIGN(
      const v1::Plan plan,
      Chain({Magnitude("train", "final_sparsity: 0.05, end: 0.7, update_frequency: 7steps"), Magnitude("train", steps)},
            Attached()));
  constexpr int64_t kEnd = 7;
  ASSERT_EQ(plan.updates_size(), alone.updates_size() + 2);
  for (int i = 0; i < alone.updates_size(); ++i) {
    const v1::PlannedUpdate& moved = plan.updates(i + 2);
    EXPECT_EQ(moved.step(), alone.updates(i).step() + kEnd);
    EXPECT_EQ(moved.sparsity(), alone.updates(i).sparsity());
    EXPECT_THAT(moved.targets(), ::testing::ElementsAreArray(alone.updates(i).targets()));
  }
  EXPECT_EQ(plan.modifiers(1).start_step(), alone.modifiers(0).start_step() + kEnd);
  EXPECT_EQ(plan.modifiers(1).end_step(), alone.modifiers(0).end_step() + kEnd);
}

TEST(ChainTest, EachRecipeMovesByAllBeforeIt) {
  const std::string five = Magnitude("train", "final_sparsity: 0.5, end: 5steps, update_scheduler: constant");
  const std::string oneshot = Magnitude("oneshot", "sparsity: 0.5", 1);
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Chain({five, oneshot, five, five}, Attached(0)));
  EXPECT_THAT(Updates(plan), ElementsAre("0@0=0.5", "1@0=0.5", "2@5=0.5", "3@10=0.5"));
  EXPECT_EQ(plan.modifiers(3).end_step(), 15);
  // Nothing to move by: recipes without train stages.
  ASSERT_OK_AND_ASSIGN(const v1::Plan first, Chain({oneshot, five}, Attached(0)));
  EXPECT_THAT(Updates(first), ElementsAre("0@0=0.5", "1@0=0.5"));
}

// A recipe that ends with a single step leaves that step to the next one too: the later one prunes after it.
TEST(ChainTest, RecipesThatTouchDoNotOverlap) {
  const std::string once = Magnitude("train", "final_sparsity: 0.5, start: 3steps, end: 3steps");
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan,
                       Chain({once, Magnitude("train", "final_sparsity: 0.6, end: 1steps")}, Attached(0)));
  EXPECT_THAT(Updates(plan), ElementsAre("0@3=0.5", "1@3=0", "1@4=0.6"));
}

TEST(ChainTest, AnOpenEndIsOnlyForTheLastRecipe) {  // known-bugs 77
  const std::string open = Stage("train", "ConstantPruningModifier: {targets: model.layers.0.mlp.up_proj, end: -1}");
  const std::string train = Magnitude("train", "final_sparsity: 0.5, end: 5steps");
  EXPECT_THAT(Chain({open, train}, Attached(0)).status(),
              HasReason(v1::ERROR_REASON_RECIPE_INVALID,
                        "b.yaml:1:1: p_stage: never starts: it follows a.yaml, where "
                        "p_stage.modifiers.ConstantPruningModifier on line 4 has no `end`; give it one"));
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Chain({train, open}, Attached(0)));
  EXPECT_EQ(plan.modifiers(1).start_step(), 5);
  EXPECT_EQ(plan.modifiers(1).end_step(), -1);
  // What needs no time may follow.
  EXPECT_OK(Chain({open, Magnitude("oneshot", "sparsity: 0.5", 1)}, Attached(0)));
}

TEST(ChainTest, MistakesNameTheirRecipe) {
  const absl::Status status = Chain({Magnitude("oneshot", "sparsty: 0.5"), Magnitude("oneshot", "sparsity: 0.5"),
                                     Magnitude("oneshot", "sparsity: 50")})
                                  .status();
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_RECIPE_INVALID,
                                AllOf(HasSubstr("a.yaml:4:"), HasSubstr("\nc.yaml:4:"), HasSubstr("sparsty"))));
  EXPECT_EQ(MetadataOf(status, "recipe"), "a.yaml");
  EXPECT_THAT(Chain({Magnitude("oneshot", "sparsity: 0.5"),
                     Stage("oneshot", "MagnitudePruningModifier: {targets: nothing, sparsity: 0.5}")})
                  .status(),
              HasReason(v1::ERROR_REASON_TARGET_UNMATCHED, HasSubstr("b.yaml:4:")));
  const std::string twice =
      "p_stage:\n  run_type: oneshot\n  modifiers:\n"
      "    - MagnitudePruningModifier: {targets: lm_head, sparsity: 0.5}\n"
      "    - ConstantPruningModifier: {targets: lm_head}\n";
  EXPECT_THAT(Chain({Magnitude("oneshot", "sparsity: 0.5"), twice}).status(),
              HasReason(v1::ERROR_REASON_MODIFIERS_OVERLAP, HasSubstr("b.yaml:5:")));
  // A single recipe needs no name beside its messages.
  EXPECT_EQ(MetadataOf(Chain({Magnitude("oneshot", "sparsty: 0.5")}).status(), "recipe"), "");
}

TEST(ChainTest, WarningsNameTheirRecipe) {
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Chain({Magnitude("oneshot", "sparsity: 0.5"),
                                                   "x: 1\n" + Magnitude("oneshot", "sparsity: 0.5, ignore: none")}));
  EXPECT_THAT(plan.warnings(), ElementsAre("b.yaml:1:4: the variable `x` is not used",
                                           AllOf(HasSubstr("b.yaml:5:"), HasSubstr("`none` matches no parameter"))));
}

TEST(ChainTest, HasAtMostSixtyFourRecipes) {
  const std::string text = Magnitude("oneshot", "sparsity: 0.5");
  EXPECT_OK(Chain(std::vector<std::string>(64, text)));
  EXPECT_THAT(Chain(std::vector<std::string>(65, text)).status(),
              HasReason(v1::ERROR_REASON_REQUEST_INVALID, HasSubstr("65")));
  EXPECT_THAT(Chain({}).status(), HasReason(v1::ERROR_REASON_REQUEST_INVALID, HasSubstr("0 are given")));
}

}  // namespace
}  // namespace espalier
