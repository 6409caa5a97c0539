// What is wrong with a recipe alone: place, field, what, nearest name.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/recipe/planner.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/recipe/test_model.h"

namespace espalier {
namespace {

using ::espalier::testing::HasReason;
using ::espalier::testing::IsOk;
using ::espalier::testing::SmallModel;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Status Try(absl::string_view recipe, PlanOptions options = {}) {
  return MakePlan(recipe, "r.yaml", SmallModel(), options).status();
}

// A one-shot recipe of one magnitude modifier, whose fields beside `targets` are `fields`. The modifier's name stands
// at 4:5, `fields` begin at 6:7.
std::string Magnitude(absl::string_view fields) {
  return absl::StrCat(
      "p_stage:\n  run_type: oneshot\n  x_modifiers:\n    MagnitudePruningModifier:\n"
      "      targets: ['re:.*_proj.weight']\n      ",
      fields, "\n");
}

// The same with all fields of one modifier, in flow style from 4:5.
std::string OneShot(absl::string_view modifier) {
  return absl::StrCat("p_stage:\n  run_type: oneshot\n  x_modifiers:\n    ", modifier, "\n");
}

std::string Train(absl::string_view modifier) {
  return absl::StrReplaceAll(OneShot(modifier), {{"oneshot", "train"}});
}

struct Bad {
  std::string recipe;
  std::string message;  // M. stands for the path of the magnitude modifier
};

void ExpectRefused(const std::vector<Bad>& cases, PlanOptions options = {}) {
  for (const Bad& bad : cases) {
    const std::string message =
        absl::StrReplaceAll(bad.message, {{"M.", "p_stage.x_modifiers.MagnitudePruningModifier."}});
    const absl::Status status = Try(bad.recipe, options);
    EXPECT_EQ(ReasonOf(status), v1::ERROR_REASON_RECIPE_INVALID) << bad.recipe << status;
    EXPECT_EQ(std::string(status.message()), message) << bad.recipe;
  }
}

TEST(RecipeErrorsTest, Fields) {  // known-bugs 74, 75, 80, 81
  constexpr char kRange[] = ", and a sparsity is the share of weights that become zero, from 0 to 1";
  ExpectRefused({
      {Magnitude("sparsty: 0.5"),
       "r.yaml:6:7: M.sparsty: is not a field of MagnitudePruningModifier; did you mean `sparsity`?"},
      {Magnitude("final_sparsty: 0.5"),
       "r.yaml:6:7: M.final_sparsty: is not a field of MagnitudePruningModifier; did you mean `final_sparsity`?"},
      {Magnitude("sparsity: 0.5\n      params: x"),
       "r.yaml:7:7: M.params: is not a field of MagnitudePruningModifier; did you mean `targets`?"},
      {Magnitude("sparsity: 0.5\n      wholly_unknown: x"),
       "r.yaml:7:7: M.wholly_unknown: is not a field of MagnitudePruningModifier"},
      {Magnitude("final_sparsity: 50"),
       absl::StrCat("r.yaml:6:23: M.final_sparsity: is 50", kRange, "; did you mean `0.5`?")},
      {Magnitude("final_sparsity: 1.5"), absl::StrCat("r.yaml:6:23: M.final_sparsity: is 1.5", kRange)},
      {Magnitude("final_sparsity: -0.1"), absl::StrCat("r.yaml:6:23: M.final_sparsity: is -0.1", kRange)},
      {Magnitude("final_sparsity: .nan"),
       "r.yaml:6:23: M.final_sparsity: must be a number, not `.nan`, which is not finite"},
      {Magnitude("final_sparsity: half"), "r.yaml:6:23: M.final_sparsity: must be a number, not the text `half`"},
      {Magnitude("final_sparsity: '0.5'"),
       "r.yaml:6:23: M.final_sparsity: must be a number, not `0.5` in quotes, which is text; write it without quotes"},
      {Magnitude("final_sparsity: 0,5"),  // known-bugs 72
       "r.yaml:6:23: M.final_sparsity: must be a number, not the text `0,5`; did you mean `0.5`?"},
      {Magnitude("final_sparsity: [0.5]"), "r.yaml:6:23: M.final_sparsity: must be a number, not a list"},
      {Magnitude("final_sparsity:"),
       "r.yaml:4:5: M.final_sparsity: is missing: the share of weights that become zero, from 0 to 1"},
      {Magnitude("final_sparsity: true"), "r.yaml:6:23: M.final_sparsity: must be a number, not `true`"},
      {Magnitude("final_sparsity: 0.5\n      sparsity: 0.5"),
       "r.yaml:7:17: M.sparsity: says the same as `final_sparsity`; keep one of them"},
      {Magnitude("final_sparsity: 0.5\n      final_sparsity: 0.6"),
       "r.yaml:7:7: final_sparsity: this key comes twice in one mapping"},
      {Magnitude("sparsity: 0.5\n      monotone: yes"),
       "r.yaml:7:17: M.monotone: must be true or false, not the text `yes`"},
      {Magnitude("sparsity: 0.5\n      monotone: 1"), "r.yaml:7:17: M.monotone: must be true or false, not `1`"},
      {Magnitude("sparsity: 0.5\n      compat: sparsml"),
       "r.yaml:7:15: M.compat: is `sparsml`, and must be one of sparseml; did you mean `sparseml`?"},
      {Magnitude("sparsity: 0.5\n      ignore: [[x]]"), "r.yaml:7:16: M.ignore[0]: must be text, not a list"},
      {Magnitude("sparsity: 0.5\n      ignore: [3]"), "r.yaml:7:16: M.ignore[0]: must be text, not `3`"},
      {Magnitude("sparsity: 0.5\n      ignore: ['']"), "r.yaml:7:16: M.ignore[0]: is empty text"},
      {OneShot("MagnitudePruningModifier: {sparsity: 0.5}"),
       "r.yaml:4:5: M.targets: is missing: what to prune, e.g. [\"re:.*_proj.weight\"]"},
      {OneShot("MagnitudePruningModifier: {sparsity: 0.5, targets: []}"),
       "r.yaml:4:56: M.targets: is an empty list, so nothing would be pruned"},
      {Magnitude("sparsity: eval(spars)\nspar: 0.5"),
       "r.yaml:6:17: M.sparsity: in `eval(spars)`: the variable `spars` is not defined; did you mean `spar`?"},
  });
}

TEST(RecipeErrorsTest, Structures) {  // known-bugs 17
  ExpectRefused({
      {Magnitude("mask_structure: 2:4\n      sparsity: 0.75"),
       "r.yaml:7:17: M.sparsity: is 0.75, but of `mask_structure` 2 of every 4 are kept, a sparsity of 0.5; leave the "
       "sparsity out, or change one of the two"},
      {Magnitude("mask_structure: '1:4'\n      final_sparsity: 0.25"),
       "r.yaml:7:23: M.final_sparsity: is 0.25, but of `mask_structure` 1 of every 4 are kept, a sparsity of 0.75; "
       "where "
       "N is meant to be the zeroed ones, say `nm_counts: zeroed`"},
      {Magnitude("mask_structure: 4:4"), "r.yaml:6:23: M.mask_structure: is `4:4`, and N:M needs 1 <= N < M <= 1024"},
      {Magnitude("mask_structure: 0:4"), "r.yaml:6:23: M.mask_structure: is `0:4`, and N:M needs 1 <= N < M <= 1024"},
      {Magnitude("mask_structure: 2:4:8"),
       "r.yaml:6:23: M.mask_structure: is `2:4:8`, and must be `unstructured` or N:M, e.g. `2:4`"},
      {Magnitude("sparsity: 0.5\n      mask_structure: unstructurd"),
       "r.yaml:7:23: M.mask_structure: is `unstructurd`, and must be `unstructured` or N:M, e.g. `2:4`; did you mean "
       "`unstructured`?"},
      {Magnitude("sparsity: 0.5\n      nm_counts: kept"),
       "r.yaml:7:18: M.nm_counts: means nothing without an N:M `mask_structure`"},
      {Magnitude("mask_structure: 2:4\n      apply_globally: true"),
       "r.yaml:6:23: M.mask_structure: an N:M mask is made row by row and cannot be global"},
      {Magnitude("mask_structure: 2:4\n      compat: sparseml"),
       "r.yaml:7:15: M.compat: means nothing for an N:M mask"},
      {OneShot("WandaPruningModifier: {sparsity: 0.75, mask_structure: '1:4'}"),
       "r.yaml:4:60: p_stage.x_modifiers.WandaPruningModifier.mask_structure: is `1:4`, which some tools read as 1 of "
       "4 "
       "zeroed and others as 1 of 4 kept; say which with `nm_counts: zeroed` or `nm_counts: kept`"},
  });
}

TEST(RecipeErrorsTest, Calibrated) {
  ExpectRefused({
      {OneShot("SparseGPTModifier: {sparsity: 0}"),
       "r.yaml:4:35: p_stage.x_modifiers.SparseGPTModifier.sparsity: is 0, and calibrated pruning needs more than "
       "that"},
      {OneShot("SparseGPTModifier: {}"),
       "r.yaml:4:5: p_stage.x_modifiers.SparseGPTModifier.sparsity: is missing: the share of weights that become zero, "
       "from 0 to 1"},
      {OneShot("SparseGPTModifier: {sparsity: 0.5, percdamp: 0.1}"),
       "r.yaml:4:40: p_stage.x_modifiers.SparseGPTModifier.percdamp: is not a field of SparseGPTModifier; did you mean "
       "`dampening_frac`?"},
      {OneShot("SparseGPTModifier: {sparsity: 0.5, block_size: 1.5}"),
       "r.yaml:4:52: p_stage.x_modifiers.SparseGPTModifier.block_size: is 1.5, and must be a whole number from 1 to "
       "1048576"},
      {OneShot("WandaPruningModifier: {sparsity: [0.5, 7]}"),
       "r.yaml:4:44: p_stage.x_modifiers.WandaPruningModifier.sparsity[1]: is 7, and a sparsity is the share of "
       "weights "
       "that become zero, from 0 to 1; did you mean `0.07`?"},
      {OneShot("WandaPruningModifier: {sparsity: 0.5, owl_m: 5}"),
       "r.yaml:4:50: p_stage.x_modifiers.WandaPruningModifier.owl_m: means nothing without `sparsity_profile: owl`"},
      {Train("WandaPruningModifier: {sparsity: 0.5}"),
       "r.yaml:4:5: p_stage.x_modifiers.WandaPruningModifier: prunes once and cannot stand in a train stage; move it "
       "into "
       "a stage with `run_type: oneshot`"},
  });
}

TEST(RecipeErrorsTest, StagesAndModifiers) {  // known-bugs 21, 74, 75, 76
  ExpectRefused({
      {"- a\n", "r.yaml:1:1: a recipe is a mapping of stages and variables, not a list"},
      {"{}\n", "r.yaml:1:1: a recipe is a mapping of stages and variables, not an empty one"},
      {"hello\n", "r.yaml:1:1: a recipe is a mapping of stages and variables, not a single value"},
      {"num_epochs: 3\n",
       "r.yaml:1:1: has no stage; write `<name>_stage:` with `<group>_modifiers:` below it, or modifiers at top level"},
      {"p_stage: {}\n", "r.yaml:1:1: p_stage: the stage is empty: it has no `<group>_modifiers`"},
      {"p_stage: [a]\n", "r.yaml:1:1: p_stage: a stage is a mapping, not a list"},
      {"stages: {}\n", "r.yaml:1:1: stages: must be a mapping from names to stages, not an empty one"},
      {"stages: {a: 1}\n", "r.yaml:1:10: stages.a: a stage is a mapping, not a single value"},
      {"p_stage: {x_modifiers: {}}\n",
       "r.yaml:1:11: p_stage.x_modifiers: the group is empty: it must be a mapping or a list of modifiers"},
      {"p_stage: {x_modifiers: [a]}\n",
       "r.yaml:1:25: p_stage.x_modifiers[0]: an entry of a list of modifiers is one modifier's name with its fields "
       "below "
       "it"},
      {"p_stage: {run_typ: train, x_modifiers: {ConstantPruningModifier: {targets: lm_head}}}\n",
       "r.yaml:1:11: p_stage.run_typ: is not a field of a stage, which has `run_type` and `<group>_modifiers`; did you "
       "mean "
       "`run_type`?"},
      {"p_stage: {run_type: trian, x_modifiers: {ConstantPruningModifier: {targets: lm_head}}}\n",
       "r.yaml:1:21: p_stage.run_type: is `trian`, and must be one of oneshot, train; did you mean `train`?"},
      {"p_stage: {ConstantPruningModifier: {targets: lm_head}}\n",
       "r.yaml:1:11: p_stage.ConstantPruningModifier: a modifier of a stage stands in a group; write `modifiers:` "
       "above it"},
      {"prune_stagee: {x_modifiers: {}}\n",
       "r.yaml:1:1: prune_stagee: is a mapping and none of: a stage (its name ends in `_stage`), `stages`, `modifiers` "
       "or "
       "`<group>_modifiers`, a modifier, `args`, `metadata`; did you mean `prune_stage`?"},
      {OneShot("MagnitudePruningModifer: {}"),
       "r.yaml:4:5: p_stage.x_modifiers.MagnitudePruningModifer: there is no modifier of this name; did you mean "
       "`MagnitudePruningModifier`?"},
      {OneShot("MagnitudePruningModifier: 3"),
       "r.yaml:4:5: p_stage.x_modifiers.MagnitudePruningModifier: a modifier is a mapping of fields, not a single "
       "value"},
      {OneShot("GPTQModifier: {scheme: W4A16}"),
       "r.yaml:4:5: p_stage.x_modifiers.GPTQModifier: is not a sparsity modifier: it quantizes"},
      {OneShot("SmoothQuantModifier: {}"),
       "r.yaml:4:5: p_stage.x_modifiers.SmoothQuantModifier: is not a sparsity modifier: it quantizes"},
      {OneShot("EpochRangeModifier: {}"),
       "r.yaml:4:5: p_stage.x_modifiers.EpochRangeModifier: is not a sparsity modifier: it belongs to the trainer"},
      {OneShot("MovementPruningModifier: {}"),
       "r.yaml:4:5: p_stage.x_modifiers.MovementPruningModifier: prunes in a way that is not available here"},
      {Magnitude("sparsity: 0.5\nsparsity: 0.4"),
       "r.yaml:7:11: sparsity: has no effect at top level, where it only is a variable that nothing uses; move it into "
       "the "
       "modifier, or use it there as eval(sparsity)"},
      {Magnitude("sparsity: 0.5\nignore: [lm_head]"),
       "r.yaml:7:1: ignore: is a field of modifiers and has no effect here; move it into each modifier"},
      {Magnitude("sparsity: 0.5\nrun_type: oneshot"),
       "r.yaml:7:11: run_type: stands at top level; move it into a stage"},
      {Magnitude("sparsity: 0.5\nmodifiers: {ConstantPruningModifier: {targets: lm_head}}"),
       "r.yaml:7:12: modifiers: modifiers stand both in stages and at top level; move these into a stage"},
      {Magnitude("sparsity: 0.5\nstages: {p_stage: {x_modifiers: {}}}"),
       "r.yaml:7:10: stages.p_stage: there is a stage of this name already"},
      {Magnitude("sparsity: 0.5\nx: 1\nargs: {x: 2}"), "r.yaml:8:8: x: this variable is defined twice"},
      {Magnitude("sparsity: 0.5\nargs: {x: [2]}"), "r.yaml:7:11: x: a variable is a single value, not a list"},
  });
}

TEST(RecipeErrorsTest, Times) {  // known-bugs 77
  PlanOptions options;
  options.worker_kind = v1::WORKER_KIND_ATTACHED;
  options.optimizer_steps_per_epoch = 10;
  const auto train = [](absl::string_view fields) {
    return Train(
        absl::StrCat("MagnitudePruningModifier: {targets: model.layers.0.mlp.up_proj, sparsity: 0.5, ", fields, "}"));
  };
  ExpectRefused(
      {
          {train("start: 0"), "r.yaml:4:5: M.end: is missing: when `final_sparsity` is reached in a train stage"},
          {train("start: 5, end: 3"), "r.yaml:4:99: M.end: is step 30, before the start at step 50"},
          {train("end: -1"), "r.yaml:4:89: M.end: is -1, and a schedule without an end never reaches `final_sparsity`"},
          {train("start: -1, end: 1"), "r.yaml:4:91: M.start: is -1, and must not be negative"},
          {train("end: -2"), "r.yaml:4:89: M.end: is -2, and must not be negative"},
          {train("end: 12 epochs"),
           "r.yaml:4:89: M.end: must be epochs as a number, or steps as \"120steps\", not the text `12 epochs`"},
          {train("end: 1.5steps"),
           "r.yaml:4:89: M.end: must be epochs as a number, or steps as \"120steps\", not the text `1.5steps`"},
          {train("end: 1e30"), "r.yaml:4:89: M.end: is too far away"},
          {train("end: 1, update_frequency: 0"),
           "r.yaml:4:110: M.update_frequency: is 0, and must be positive; leave it out to update at every step"},
          {train("end: 1, update: 1, update_frequency: 1"),
           "r.yaml:4:100: M.update: says the same as `update_frequency`; keep one of them"},
          {train("end: 1, update_scheduler: cubik"),
           "r.yaml:4:110: M.update_scheduler: is `cubik`, and must be one of linear, cubic, polynomial, multi_step, "
           "constant; did you mean `cubic`?"},
          {train("end: 1, update_scheduler: polynomial_decay"),
           "r.yaml:4:110: M.update_scheduler: `polynomial_decay` leaves the range from 0 to 1 for even exponents; with "
           "exponent 3 it is `cubic`"},
          {train("end: 1, update_scheduler: calc(index)"),
           "r.yaml:4:110: M.update_scheduler: `calc(...)` is not read; `multi_step` takes any series of values"},
          {train("end: 1, scheduler_args: {exponent: 3}"),
           "r.yaml:4:109: M.scheduler_args.exponent: is not a field of the scheduler `cubic`"},
          {train("end: 1, update_scheduler: polynomial, scheduler_args: {exponent: 2.5}"),
           "r.yaml:4:149: M.scheduler_args.exponent: is 2.5, and must be a whole number from 1 to 8"},
          {train("end: 1, update_scheduler: multi_step"),
           "r.yaml:4:5: M.scheduler_args: is missing: `multi_step` takes e.g. {steps: [[0.5, 0.2], [1.0, 0.4]]}"},
          {train("end: 1, update_scheduler: multi_step, scheduler_args: {steps: [[1]]}"),
           "r.yaml:4:147: M.scheduler_args.steps[0]: must be a pair [time, sparsity]"},
          {train("end: 1, update_scheduler: multi_step, scheduler_args: {steps: [[2, 0.3]]}"),
           "r.yaml:4:148: M.scheduler_args.steps[0][0]: is step 20, outside the modifier's steps 0 to 10"},
          {train("init_sparsity: 0.7, end: 1"),
           "r.yaml:4:99: M.init_sparsity: is 0.7, more than the final 0.5, and masks only grow unless `monotone: "
           "false` is "
           "given"},
      },
      options);
  options.optimizer_steps_per_epoch = 0;
  ExpectRefused({{train("end: 1"),
                  "r.yaml:4:89: M.end: is in epochs, and how many optimizer steps make an epoch is not known; give "
                  "`optimizer_steps_per_epoch`, or write steps, e.g. \"120steps\""}},
                options);
  EXPECT_OK(Try(train("end: 120steps"), options));
}

TEST(RecipeErrorsTest, AreReportedTogetherInTheOrderOfTheText) {
  const absl::Status status = Try("a: eval(1/0)\n" + Magnitude("sparsty: 0.5\n      monotone: no\n      ignore: [1]"));
  EXPECT_EQ(status.message(),
            "r.yaml:1:4: a: in `eval(1/0)`: division by zero\n"
            "r.yaml:7:7: p_stage.x_modifiers.MagnitudePruningModifier.sparsty: is not a field of "
            "MagnitudePruningModifier; did you mean `sparsity`?\n"
            "r.yaml:8:17: p_stage.x_modifiers.MagnitudePruningModifier.monotone: must be true or false, not the text "
            "`no`\n"
            "r.yaml:9:16: p_stage.x_modifiers.MagnitudePruningModifier.ignore[0]: must be text, not `1`");
  EXPECT_EQ(MetadataOf(status, "field"), "a");
  EXPECT_EQ(MetadataOf(status, "line"), "1");
  EXPECT_EQ(MetadataOf(status, "column"), "4");
}

TEST(RecipeErrorsTest, CarryMetadata) {
  const absl::Status status = Try(Magnitude("sparsty: 0.5"));
  EXPECT_EQ(MetadataOf(status, "field"), "p_stage.x_modifiers.MagnitudePruningModifier.sparsty");
  EXPECT_EQ(MetadataOf(status, "line"), "6");
  EXPECT_EQ(MetadataOf(status, "column"), "7");
  EXPECT_EQ(MetadataOf(status, "suggestion"), "sparsity");
}

size_t SizeOf(const absl::Status& status) {
  return ToProto(status).ByteSizeLong();
}

TEST(RecipeErrorsTest, StayUnderFourKibibytes) {
  std::string fields = "sparsity: 0.5";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&fields, "\n      mistake_", i, ": 1");
  const absl::Status many = Try(Magnitude(fields));
  EXPECT_THAT(many, HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr(" more")));
  EXPECT_LT(SizeOf(many), 4096U);
  EXPECT_GT(SizeOf(many), 2000U);
  // Long names, of characters of several bytes, are cut between characters.
  std::string wide;
  for (int i = 0; i < 3000; ++i) wide += "\xC3\xA9\xE2\x82\xAC";
  const absl::Status names = Try(Magnitude(absl::StrCat(wide, ": 1\n      ", wide, "x: 2\n      sparsity: 0.5")));
  EXPECT_LT(SizeOf(names), 4096U);
  v1::Status parsed;
  EXPECT_TRUE(parsed.ParseFromString(ToProto(names).SerializeAsString()));  // proto3 refuses what is not UTF-8
}

TEST(RecipeErrorsTest, EscapeWhatTheyQuote) {
  EXPECT_THAT(Try(Magnitude("final_sparsity: \"a\\nb\\tc\"")),
              HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr("not `a\\x0ab\\x09c` in quotes")));
}

TEST(RecipeErrorsTest, LimitTheNumberOfModifiers) {
  std::string list = "p_stage:\n  run_type: oneshot\n  x_modifiers:\n";
  for (int i = 0; i < 1001; ++i) list += "    - ConstantPruningModifier: {targets: lm_head}\n";
  EXPECT_THAT(Try(list),
              HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr("the recipe has more than 1000 modifiers")));
}

}  // namespace
}  // namespace espalier
