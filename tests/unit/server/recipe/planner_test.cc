#include "server/recipe/planner.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/crc32.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/recipe/test_model.h"

namespace espalier {
namespace {

using ::espalier::testing::AddParameter;
using ::espalier::testing::HasReason;
using ::espalier::testing::IsOk;
using ::espalier::testing::SmallModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<v1::Plan> Plan(absl::string_view recipe, PlanOptions options = {},
                              const v1::ModelDescription& model = SmallModel()) {
  return MakePlan(recipe, "r.yaml", model, options);
}

PlanOptions Attached(int64_t steps_per_epoch = 10) {
  PlanOptions options;
  options.worker_kind = v1::WORKER_KIND_ATTACHED;
  options.optimizer_steps_per_epoch = steps_per_epoch;
  return options;
}

// "stage:modifier@step=sparsity[targets]" of each update.
std::vector<std::string> Updates(const v1::Plan& plan) {
  std::vector<std::string> out;
  for (const v1::PlannedUpdate& update : plan.updates()) {
    const int stage = plan.modifiers(update.modifier()).stage();
    out.push_back(absl::StrCat(stage, ":", update.modifier(), "@", update.step(), "=", update.sparsity(), "[",
                               absl::StrJoin(update.targets(), ","), "]"));
  }
  return out;
}

constexpr char kFirst[] = R"(prune_stage:
  run_type: oneshot
  pruning_modifiers:
    MagnitudePruningModifier:
      targets: ["re:.*_proj.weight"]
      final_sparsity: 0.5
)";

TEST(PlannerTest, PlansTheFirstRecipe) {
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan(kFirst));
  ASSERT_EQ(plan.stages_size(), 1);
  EXPECT_EQ(plan.stages(0).name(), "prune_stage");
  EXPECT_EQ(plan.stages(0).run_type(), v1::RUN_TYPE_ONESHOT);
  EXPECT_FALSE(plan.stages(0).run_type_inferred());
  EXPECT_THAT(Updates(plan), ElementsAre("0:0@0=0.5[64,32,64,32]"));
  ASSERT_EQ(plan.modifiers_size(), 1);
  const v1::PlannedModifier& modifier = plan.modifiers(0);
  EXPECT_EQ(modifier.type(), "MagnitudePruningModifier");
  EXPECT_EQ(modifier.method(), v1::SELECTION_METHOD_MAGNITUDE);
  EXPECT_EQ(modifier.rule(), v1::SELECTION_RULE_EXACT);
  EXPECT_EQ(modifier.structure().m(), 0);
  EXPECT_TRUE(modifier.monotone());
  EXPECT_FALSE(modifier.allow_empty());
  EXPECT_TRUE(modifier.leave_enabled());
  EXPECT_EQ(modifier.start_step(), 0);
  EXPECT_EQ(modifier.end_step(), 0);
  EXPECT_THAT(plan.warnings(), IsEmpty());
  EXPECT_EQ(plan.pruned_parameters(), 4);
  EXPECT_EQ(plan.pruned_elements(), 384);
  EXPECT_EQ(plan.model_parameters(), 10);
  EXPECT_EQ(plan.model_elements(), 32 * 8 + 4 + 2 * (16 * 8 + 8 + 8 + 8 * 8));
  EXPECT_EQ(plan.recipe_crc32(), Crc32(0, kFirst, sizeof(kFirst) - 1));
}

TEST(PlannerTest, DoesNotDependOnWorldSize) {
  PlanOptions options;
  options.world_size = 7;
  EXPECT_EQ(Plan(kFirst)->SerializeAsString(), Plan(kFirst, options)->SerializeAsString());
}

TEST(PlannerTest, ReadsEveryFormOfStage) {
  constexpr char kModifier[] = "MagnitudePruningModifier: {targets: model.layers.0.mlp.up_proj, sparsity: 0.5}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {absl::StrCat("p_stage:\n  x_modifiers:\n    ", kModifier), "p_stage"},
      {absl::StrCat("p_stage:\n  x_modifiers:\n    - ", kModifier), "p_stage"},
      {absl::StrCat("p_stage:\n  modifiers:\n    - ", kModifier), "p_stage"},
      {absl::StrCat("stages:\n  anything:\n    x_modifiers:\n      ", kModifier), "anything"},
      {absl::StrCat("x_modifiers:\n  ", kModifier), "default_stage"},
      {absl::StrCat("modifiers:\n  - ", kModifier), "default_stage"},
      {absl::StrCat("version: 1.1.0\nmetadata: {tags: [a]}\nrun_type: oneshot\n", kModifier), "default_stage"},
      {"{\"p_stage\": {\"x_modifiers\": {\"MagnitudePruningModifier\": {\"targets\": "
       "[\"model.layers.0.mlp.up_proj\"], \"final_sparsity\": 5e-1}}}}",
       "p_stage"},
  };
  for (const auto& [recipe, stage] : cases) {
    const auto plan = Plan(recipe);
    ASSERT_THAT(plan, IsOk()) << recipe;
    EXPECT_EQ(plan->stages(0).name(), stage) << recipe;
    EXPECT_THAT(Updates(*plan), ElementsAre("0:0@0=0.5[64]")) << recipe;
    EXPECT_THAT(plan->warnings(), IsEmpty()) << recipe;
  }
}

TEST(PlannerTest, InfersTheRunTypeFromTheWorkersAndNeverFromNames) {
  constexpr char kRecipe[] =
      "train_stage:\n  modifiers:\n    MagnitudePruningModifier: {targets: lm_head, sparsity: 0.5, end: 1}\n";
  ASSERT_OK_AND_ASSIGN(const v1::Plan once, Plan(kRecipe));
  EXPECT_EQ(once.stages(0).run_type(), v1::RUN_TYPE_ONESHOT);
  EXPECT_TRUE(once.stages(0).run_type_inferred());
  ASSERT_OK_AND_ASSIGN(const v1::Plan training, Plan(kRecipe, Attached()));
  EXPECT_EQ(training.stages(0).run_type(), v1::RUN_TYPE_TRAIN);
  EXPECT_TRUE(training.stages(0).run_type_inferred());
}

TEST(PlannerTest, EvaluatesVariables) {  // known-bugs 82
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan(R"(
target: eval(a + b)
a: 0.2
args: {b: 0.7}
p_stage:
  modifiers:
    MagnitudePruningModifier: {targets: ["re:model.layers.eval(layer).mlp"], final_sparsity: eval(target)}
layer: 1
)"));
  EXPECT_THAT(Updates(plan), ElementsAre("0:0@0=0.9[115]"));  // 115.2
  EXPECT_THAT(plan.warnings(), IsEmpty());
}

TEST(PlannerTest, WarnsOfWhatHasNoEffect) {
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan(R"(num_epochs: 2
p_stage:
  run_type: oneshot
  modifiers:
    MagnitudePruningModifier:
      targets: lm_head
      init_sparsity: 0.05
      final_sparsity: 0.5
      start: -1
      end: -1
      update_frequency: 0.25
      update_scheduler: linear
      leave_enabled: false
    ConstantPruningModifier: {targets: model.layers.0.mlp.up_proj, start: 1.0}
)"));
  constexpr char kPath[] = "p_stage.modifiers.";
  constexpr char kOnce[] = ": has no effect in a one-shot stage";
  const auto warning = [&](absl::string_view place, absl::string_view field) {
    return absl::StrCat(place, ": ", kPath, field, kOnce);
  };
  EXPECT_THAT(
      plan.warnings(),
      ElementsAre(warning("9:14", "MagnitudePruningModifier.start"), warning("10:12", "MagnitudePruningModifier.end"),
                  warning("11:25", "MagnitudePruningModifier.update_frequency"),
                  warning("7:22", "MagnitudePruningModifier.init_sparsity"),
                  warning("12:25", "MagnitudePruningModifier.update_scheduler"),
                  warning("13:22", "MagnitudePruningModifier.leave_enabled"),
                  warning("14:75", "ConstantPruningModifier.start"), "1:13: the variable `num_epochs` is not used"));
  EXPECT_THAT(Updates(plan), ElementsAre("0:0@0=0.5[128]", "0:1@0=[]"));
}

TEST(PlannerTest, CountsByTheRuleThatIsAskedFor) {
  const auto targets = [](absl::string_view fields) {
    const auto plan =
        Plan(absl::StrCat("modifiers:\n  MagnitudePruningModifier: {targets: 're:.*q_proj', ", fields, "}\n"));
    return plan.ok() ? Updates(*plan) : std::vector<std::string>{plan.status().ToString()};
  };
  EXPECT_THAT(targets("sparsity: 0.5078125"), ElementsAre("0:0@0=0.5078125[32,32]"));  // 32.5
  EXPECT_THAT(targets("sparsity: 0.5234375"), ElementsAre("0:0@0=0.5234375[34,34]"));  // 33.5
  EXPECT_THAT(targets("sparsity: 0.5234375, compat: sparseml"), ElementsAre("0:0@0=0.5234375[33,33]"));
  EXPECT_THAT(targets("sparsity: 0.5, apply_globally: true"), ElementsAre("0:0@0=0.5[64]"));
  EXPECT_THAT(targets("sparsity: 1.0"), ElementsAre("0:0@0=1[64,64]"));  // known-bugs 80
  EXPECT_THAT(targets("sparsity: 0"), ElementsAre("0:0@0=0[0,0]"));
  EXPECT_THAT(targets("sparsity: eval(1/3)"), ElementsAre("0:0@0=0.333333333333[21,21]"));
}

TEST(PlannerTest, RefusesToEmptyTensorsByAccident) {  // known-bugs 19
  v1::ModelDescription model;
  AddParameter(model, "big.weight", {8, 8});
  AddParameter(model, "tiny.weight", {1, 1});
  const auto plan = [&](absl::string_view fields) {
    return Plan(absl::StrCat("modifiers:\n  MagnitudePruningModifier: {targets: 're:.*', ", fields, "}\n"), {}, model);
  };
  const absl::Status status = plan("sparsity: 0.6").status();
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE));
  EXPECT_EQ(
      std::string(status.message()),
      "r.yaml:2:58: modifiers.MagnitudePruningModifier.sparsity: is 0.6, which prunes every element of `tiny.weight`; "
      "leave them out with `ignore`, or say `allow_empty: true`");
  EXPECT_EQ(MetadataOf(status, "parameter"), "tiny.weight");
  EXPECT_OK(plan("sparsity: 0.6, allow_empty: true"));
  EXPECT_OK(plan("sparsity: 0.6, ignore: tiny"));
  EXPECT_OK(plan("sparsity: 0.5"));  // 0.5 of one rounds to none
  EXPECT_OK(plan("sparsity: 1"));
  EXPECT_OK(plan("sparsity: 0.99, apply_globally: true"));  // which tensors empty is known at the update
  EXPECT_THAT(plan("sparsity: 1, apply_globally: true"), HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE));
  EXPECT_OK(plan("sparsity: 1, apply_globally: true, allow_empty: true"));
}

TEST(PlannerTest, ReadsNOfM) {  // known-bugs 17
  const auto structure = [](absl::string_view modifier, absl::string_view fields) -> std::string {
    const auto plan = Plan(absl::StrCat("modifiers:\n  ", modifier, ": {targets: 're:.*q_proj', ", fields, "}\n"));
    if (!plan.ok()) return plan.status().ToString();
    const v1::PlannedModifier& planned = plan->modifiers(0);
    return absl::StrCat(v1::SelectionMethod_Name(planned.method()).substr(17), " ", planned.structure().n(), " of ",
                        planned.structure().m(), " ", Updates(*plan)[0]);
  };
  constexpr char kMagnitude[] = "MagnitudePruningModifier";
  EXPECT_EQ(structure(kMagnitude, "mask_structure: '1:4'"), "N_OF_M 1 of 4 0:0@0=[]");
  EXPECT_EQ(structure(kMagnitude, "mask_structure: 3:4"), "N_OF_M 3 of 4 0:0@0=[]");
  EXPECT_EQ(structure(kMagnitude, "mask_structure: 1:4, sparsity: 0.75"), "N_OF_M 1 of 4 0:0@0=[]");
  EXPECT_EQ(structure(kMagnitude, "mask_structure: 1:4, nm_counts: zeroed"), "N_OF_M 3 of 4 0:0@0=[]");
  EXPECT_EQ(structure(kMagnitude, "mask_structure: 1:4, nm_counts: zeroed, sparsity: 0.25"), "N_OF_M 3 of 4 0:0@0=[]");
  EXPECT_EQ(structure(kMagnitude, "mask_structure: '0:0', sparsity: 0.5"), "MAGNITUDE 0 of 0 0:0@0=0.5[32,32]");
  EXPECT_EQ(structure("SparseGPTModifier", "mask_structure: 2:4, sparsity: 0.5"), "SPARSE_GPT 2 of 4 0:0@0=[]");
  EXPECT_EQ(structure("SparseGPTModifier", "mask_structure: 1:4, sparsity: 0.25, nm_counts: zeroed"),
            "SPARSE_GPT 3 of 4 0:0@0=[]");
  EXPECT_EQ(structure("WandaPruningModifier", "mask_structure: 1:4, nm_counts: kept"), "WANDA 1 of 4 0:0@0=[]");
}

TEST(PlannerTest, PlansCalibratedModifiers) {
  const auto updates = [](absl::string_view modifier) {
    const auto plan = Plan(absl::StrCat("modifiers:\n  ", modifier, "\n"));
    return plan.ok() ? Updates(*plan) : std::vector<std::string>{plan.status().ToString()};
  };
  // Without targets: the linear layers. Wanda cuts in each row of 8: int(8 * 0.3) = 2.
  EXPECT_THAT(updates("WandaPruningModifier: {sparsity: 0.3}"), ElementsAre("0:0@0=0.3[32,16,32,16]"));
  EXPECT_THAT(updates("SparseGPTModifier: {sparsity: 0.3, dampening_frac: 0.01, block_size: 128}"),
              ElementsAre("0:0@0=0.3[38,19,38,19]"));
  ASSERT_OK_AND_ASSIGN(
      const v1::Plan owl,
      Plan("modifiers:\n  SparseGPTModifier: {sparsity: 0.5, sparsity_profile: owl, owl_m: 5, owl_lmbda: 0.08}\n"));
  EXPECT_THAT(Updates(owl), ElementsAre("0:0@0=[]"));
  EXPECT_THAT(owl.warnings(),
              ElementsAre("2:3: modifiers.SparseGPTModifier: how much of each layer is pruned is only known "
                          "when it runs"));
  EXPECT_THAT(updates("SparseGPTModifier: {sparsity: [0.5, 0.6]}"), ElementsAre("0:0@0=[]"));
}

TEST(PlannerTest, PutsATrainStageOnSteps) {
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan(R"(
s_stage:
  run_type: train
  modifiers:
    MagnitudePruningModifier:
      targets: model.layers.0.mlp.up_proj
      init_sparsity: 0.05
      final_sparsity: 0.5
      start: 0.5
      end: 1.5
      update_frequency: 0.25
)",
                                                 Attached()));
  // Steps 5, 7.5, 10, 12.5, 15 of ten an epoch, halves to even; cubic; k of 128 elements.
  EXPECT_THAT(Updates(plan), ElementsAre("0:0@5=0.05[6]", "0:0@8=0.34565[44]", "0:0@10=0.44375[57]",
                                         "0:0@12=0.48785[62]", "0:0@15=0.5[64]"));
  EXPECT_EQ(plan.modifiers(0).start_step(), 5);
  EXPECT_EQ(plan.modifiers(0).end_step(), 15);
}

std::vector<std::string> TrainUpdates(absl::string_view fields, int64_t steps_per_epoch = 0) {
  const auto plan =
      Plan(absl::StrCat("s_stage:\n  run_type: train\n  modifiers:\n    MagnitudePruningModifier: {targets: "
                        "model.layers.0.mlp.up_proj, ",
                        fields, "}\n"),
           Attached(steps_per_epoch));
  return plan.ok() ? Updates(*plan) : std::vector<std::string>{plan.status().ToString()};
}

TEST(PlannerTest, HonoursTheUpdateInterval) {
  EXPECT_THAT(TrainUpdates("final_sparsity: 0.5, end: 4steps, update_scheduler: linear"),
              ElementsAre("0:0@0=0[0]", "0:0@1=0.125[16]", "0:0@2=0.25[32]", "0:0@3=0.375[48]", "0:0@4=0.5[64]"));
  EXPECT_THAT(TrainUpdates("final_sparsity: 0.5, end: 4 steps, update: 3steps, update_scheduler: linear"),
              ElementsAre("0:0@0=0[0]", "0:0@3=0.375[48]", "0:0@4=0.5[64]"));
  EXPECT_THAT(TrainUpdates("final_sparsity: 0.5, start: 2steps, end: 2steps"), ElementsAre("0:0@2=0.5[64]"));
  EXPECT_THAT(TrainUpdates("final_sparsity: 0.5, end: 9steps, update_scheduler: constant"),
              ElementsAre("0:0@0=0.5[64]"));
  EXPECT_THAT(
      TrainUpdates("final_sparsity: 0.5, end: 1, update_scheduler: multi_step, scheduler_args: {steps: [[0.5, 0.4], "
                   "[2steps, 0.2]]}",
                   10),
      ElementsAre("0:0@0=0[0]", "0:0@2=0.2[26]", "0:0@5=0.4[51]", "0:0@10=0.5[64]"));
  EXPECT_THAT(TrainUpdates("final_sparsity: 0.5, end: 4steps, update_frequency: 2steps, update_scheduler: polynomial, "
                           "scheduler_args: {exponent: 3}"),
              ElementsAre("0:0@0=0[0]", "0:0@2=0.0625[8]", "0:0@4=0.5[64]"));
  EXPECT_THAT(
      TrainUpdates("init_sparsity: 0.8, final_sparsity: 0.5, monotone: false, end: 2steps, update_scheduler: linear"),
      ElementsAre("0:0@0=0.8[102]", "0:0@1=0.65[83]", "0:0@2=0.5[64]"));
}

TEST(PlannerTest, BoundsTheUpdates) {
  EXPECT_THAT(TrainUpdates("final_sparsity: 0.5, end: 20000steps").size(), 20001U);
  EXPECT_THAT(TrainUpdates("final_sparsity: 0.5, end: 30000steps")[0],
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("makes more than 20000 updates")));
  EXPECT_THAT(TrainUpdates("final_sparsity: 0.5, end: 1000000000steps, update_frequency: 1000000steps").size(), 1001U);
}

TEST(PlannerTest, NOfMInATrainStageIsMadeOnce) {
  ASSERT_OK_AND_ASSIGN(
      const v1::Plan plan,
      Plan("s_stage:\n  run_type: train\n  modifiers:\n    MagnitudePruningModifier: {targets: lm_head, "
           "mask_structure: 2:4, start: 3steps, update_frequency: 1steps}\n",
           Attached(0)));
  EXPECT_THAT(Updates(plan), ElementsAre("0:0@3=[]"));
  EXPECT_EQ(plan.modifiers(0).end_step(), -1);
  ASSERT_EQ(plan.warnings_size(), 1);
  EXPECT_THAT(plan.warnings(0), HasSubstr("update_frequency: has no effect on a mask that is made once"));
}

constexpr char kTwoModifiers[] = R"(s_stage:
  run_type: train
  modifiers:
    - MagnitudePruningModifier:
        targets: ["re:.*proj.weight"]
        final_sparsity: 0.5
        start: 0steps
        end: 10steps
        update_frequency: 5steps
    - ConstantPruningModifier:
        targets: ["re:.*q_proj"]
        start: )";

TEST(PlannerTest, RefusesOverlapsAndAcceptsWindowsThatTouch) {  // known-bugs 83
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan(absl::StrCat(kTwoModifiers, "10steps\n"), Attached()));
  EXPECT_THAT(Updates(plan),
              ElementsAre("0:0@0=0[0,0,0,0]", "0:0@5=0.4375[56,28,56,28]", "0:0@10=0.5[64,32,64,32]", "0:1@10=[]"));
  EXPECT_EQ(plan.modifiers(1).end_step(), -1);
  const absl::Status status = Plan(absl::StrCat(kTwoModifiers, "9steps\n"), Attached()).status();
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_MODIFIERS_OVERLAP));
  EXPECT_EQ(
      std::string(status.message()),
      "r.yaml:10:7: s_stage.modifiers[1].ConstantPruningModifier: prunes `model.layers.0.self_attn.q_proj.weight` and "
      "1 more (from step 9 on), which s_stage.modifiers[0].MagnitudePruningModifier on line 4 owns at the same time "
      "(steps 0 to 10); give them different targets or times that do not overlap");
  EXPECT_EQ(MetadataOf(status, "parameter"), "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(MetadataOf(status, "first"), "s_stage.modifiers[0].MagnitudePruningModifier");
  EXPECT_EQ(MetadataOf(status, "second"), "s_stage.modifiers[1].ConstantPruningModifier");
}

TEST(PlannerTest, OneShotStagesRunOneAfterAnother) {
  constexpr char kStages[] = R"(a_stage:
  run_type: oneshot
  modifiers: {MagnitudePruningModifier: {targets: Linear, sparsity: 0.3}}
b_stage:
  run_type: oneshot
  modifiers: {MagnitudePruningModifier: {targets: Linear, mask_structure: 2:4}}
)";
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan(kStages));
  EXPECT_THAT(Updates(plan), ElementsAre("0:0@0=0.3[38,19,38,19]", "1:1@0=[]"));
  EXPECT_EQ(plan.pruned_parameters(), 4);  // counted once
  EXPECT_THAT(Plan("modifiers:\n  - MagnitudePruningModifier: {targets: Linear, sparsity: 0.3}\n"
                   "  - ConstantPruningModifier: {targets: 're:.*up'}\n"),
              HasReason(v1::ERROR_REASON_MODIFIERS_OVERLAP,
                        HasSubstr("r.yaml:3:5: modifiers[1].ConstantPruningModifier: prunes "
                                  "`model.layers.0.mlp.up_proj.weight` and 1 more, which "
                                  "modifiers[0].MagnitudePruningModifier on line 2 owns at the same time; give them "
                                  "different targets or stages")));
}

TEST(PlannerTest, TrainStagesFollowEachOther) {  // known-bugs 77, 78
  const auto plan = [](absl::string_view first, absl::string_view second) {
    return Plan(
        absl::StrCat("a_stage:\n  run_type: train\n  modifiers: {ConstantPruningModifier: {targets: lm_head, ", first,
                     "}}\nb_stage:\n  run_type: train\n  modifiers: {MagnitudePruningModifier: {targets: Linear, "
                     "sparsity: 0.5, update_frequency: 2, ",
                     second, "}}\n"),
        Attached());
  };
  // Times are those of the training: no stage moves another.
  ASSERT_OK_AND_ASSIGN(const v1::Plan touching, plan("end: 3", "start: 3, end: 5"));
  EXPECT_EQ(touching.updates(1).step(), 30);
  EXPECT_EQ(touching.updates(2).step(), 50);
  EXPECT_EQ(touching.updates_size(), 3);
  for (const char* first : {"start: 0, end: -1", "start: 0"}) {
    EXPECT_THAT(
        plan(first, "start: 3, end: 5"),
        HasReason(v1::ERROR_REASON_RECIPE_INVALID,
                  HasSubstr("b_stage.modifiers.MagnitudePruningModifier: starts at step 30, before "
                            "a_stage.modifiers.ConstantPruningModifier of an earlier stage ends: that one has no "
                            "`end`; stages run one after another")));
  }
  EXPECT_THAT(plan("end: 4", "start: 3, end: 5"),
              HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr("ends at step 40")));
}

TEST(PlannerTest, RefusesTrainStagesOfCheckpointWorkersWhenTimesAreUnknown) {
  constexpr char kRecipe[] =
      "s_stage:\n  run_type: train\n  modifiers:\n    MagnitudePruningModifier: {targets: lm_head, sparsity: 0.5, end: "
      "1}\n";
  const absl::Status status = Plan(kRecipe).status();
  EXPECT_THAT(status,
              HasReason(v1::ERROR_REASON_WORKER_KIND,
                        HasSubstr("r.yaml:1:1: s_stage: is a train stage, and checkpoint workers do not train")));
  EXPECT_EQ(MetadataOf(status, "stage"), "s_stage");
  EXPECT_EQ(MetadataOf(status, "kind"), "checkpoint");
  PlanOptions options;
  options.optimizer_steps_per_epoch = 100;
  EXPECT_OK(Plan(kRecipe, options));
}

TEST(PlannerTest, SurvivesFortyThousandParametersAndManyTargets) {
  v1::ModelDescription model;
  for (int i = 0; i < 40'000; ++i)
    AddParameter(model, absl::StrCat("model.layers.", 100'000 + i, ".gate_proj.weight"), {1, 4});
  ASSERT_OK_AND_ASSIGN(
      const v1::Plan plan,
      Plan("modifiers:\n  MagnitudePruningModifier: {targets: 're:.*gate_proj.weight', sparsity: 0.5}\n", {}, model));
  EXPECT_EQ(plan.pruned_parameters(), 40'000);
  EXPECT_EQ(plan.updates(0).targets_size(), 40'000);
  // Two hundred useless names: each is told, and the answer stays small.
  std::string targets = "modifiers:\n  MagnitudePruningModifier:\n    sparsity: 0.5\n    targets:\n";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&targets, "      - model.layers.", i, ".gate_proj.wait\n");
  const absl::Status status = Plan(targets, {}, model).status();
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_TARGET_UNMATCHED, HasSubstr(" more")));
  EXPECT_LT(ToProto(status).ByteSizeLong(), 4096U);
}

}  // namespace
}  // namespace espalier
