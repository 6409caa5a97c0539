// Which parameters a modifier gets.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/recipe/planner.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/recipe/test_model.h"

namespace espalier {
namespace {

using ::espalier::testing::AddParameter;
using ::espalier::testing::HasReason;
using ::espalier::testing::SmallModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// One magnitude modifier at 50 % with these flow-style fields.
absl::StatusOr<v1::Plan> Plan(absl::string_view fields, const v1::ModelDescription& model = SmallModel()) {
  return MakePlan(absl::StrCat("modifiers:\n  MagnitudePruningModifier: {", fields, "}\n"), "r.yaml", model, {});
}

// Names without "model.layers." and ".weight", joined.
std::string TakenBy(absl::string_view fields, const v1::ModelDescription& model = SmallModel()) {
  const auto plan = Plan(absl::StrCat("sparsity: 0.5, ", fields), model);
  if (!plan.ok()) return plan.status().ToString();
  return absl::StrJoin(plan->modifiers(0).parameters(), " ");
}

constexpr char kUp0[] = "model.layers.0.mlp.up_proj.weight";
constexpr char kUp1[] = "model.layers.1.mlp.up_proj.weight";
constexpr char kQ0[] = "model.layers.0.self_attn.q_proj.weight";
constexpr char kQ1[] = "model.layers.1.self_attn.q_proj.weight";
constexpr char kQBias0[] = "model.layers.0.self_attn.q_proj.bias";
constexpr char kNorm0[] = "model.layers.0.norm.weight";
constexpr char kNorm1[] = "model.layers.1.norm.weight";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

std::string Names(const std::vector<std::string>& names) {
  return absl::StrJoin(names, " ");
}

TEST(TargetsTest, NameParametersAndLayers) {
  EXPECT_EQ(TakenBy(absl::StrCat("targets: ", kUp0)), kUp0);
  EXPECT_EQ(TakenBy("targets: model.layers.0.mlp.up_proj"), kUp0);
  EXPECT_EQ(TakenBy("targets: model.layers.0.self_attn.q_proj"), kQ0);  // its weight, never its bias
  EXPECT_EQ(TakenBy(absl::StrCat("targets: [", kQBias0, "]")), kQBias0);
  EXPECT_EQ(TakenBy(absl::StrCat("targets: [", kUp1, ", ", kUp0, ", ", kUp1, "]")), Names({kUp0, kUp1}));
  EXPECT_EQ(TakenBy("targets: lm_head"), kEmbedding);
  EXPECT_EQ(TakenBy("targets: lm_head.weight"), kEmbedding);
}

TEST(TargetsTest, MatchExpressionsFromTheStart) {
  EXPECT_EQ(TakenBy("targets: 're:.*q_proj.weight'"), Names({kQ0, kQ1}));
  EXPECT_EQ(TakenBy("targets: 're:.*q_proj'"), Names({kQ0, kQ1}));   // open at the end
  EXPECT_EQ(TakenBy("targets: 're:.*q_proj$'"), Names({kQ0, kQ1}));  // the layer's name
  EXPECT_EQ(TakenBy("targets: 're:model.layers.0.*proj'"), Names({kUp0, kQ0}));
  EXPECT_EQ(TakenBy("targets: 're:.*q_proj.bias', ignore: 're:.*1.*'"), kQBias0);
  EXPECT_EQ(TakenBy("targets: 're:lm_head'"), kEmbedding);
  EXPECT_EQ(TakenBy("targets: 're:(?i).*UP_PROJ'"), Names({kUp0, kUp1}));
}

TEST(TargetsTest, KnowTokensAndClasses) {
  EXPECT_EQ(TakenBy("targets: __ALL_PRUNABLE__"), Names({kEmbedding, kUp0, kQ0, kUp1, kQ1}));
  EXPECT_EQ(TakenBy("targets: [__ALL__]"), Names({kEmbedding, kUp0, kNorm0, kQ0, kUp1, kNorm1, kQ1}));
  EXPECT_EQ(TakenBy("targets: Linear"), Names({kUp0, kQ0, kUp1, kQ1}));
  EXPECT_EQ(TakenBy("targets: Embedding"), kEmbedding);
  v1::ModelDescription gpt;
  gpt.set_architecture("GPT2LMHeadModel");
  AddParameter(gpt, "conv.weight", {4, 3, 2, 2}, v1::LAYER_KIND_CONV);
  AddParameter(gpt, "h.0.c_attn.weight", {4, 12}, v1::LAYER_KIND_TRANSPOSED_LINEAR);
  EXPECT_EQ(TakenBy("targets: Conv1D", gpt), "h.0.c_attn.weight");
  EXPECT_EQ(TakenBy("targets: Conv2d", gpt), "conv.weight");
  EXPECT_THAT(Plan("sparsity: 0.5, targets: Conv1d", gpt),
              HasReason(v1::ERROR_REASON_TARGET_UNMATCHED, HasSubstr("no layer of the model is of this class")));
  gpt.clear_architecture();
  EXPECT_THAT(
      Plan("sparsity: 0.5, targets: Conv1D", gpt),
      HasReason(v1::ERROR_REASON_TARGET_UNMATCHED,
                HasSubstr("class names need the architecture that config.json tells, and this model has none")));
}

TEST(TargetsTest, AreProtectedByAnyName) {  // known-bugs 18
  EXPECT_EQ(TakenBy("targets: __ALL_PRUNABLE__, ignore: [lm_head]"), Names({kUp0, kQ0, kUp1, kQ1}));
  EXPECT_EQ(TakenBy("targets: __ALL_PRUNABLE__, ignore: model.embed_tokens"), Names({kUp0, kQ0, kUp1, kQ1}));
  EXPECT_EQ(TakenBy("targets: __ALL_PRUNABLE__, ignore: ['re:.*head', 're:.*layers.1.*']"), Names({kUp0, kQ0}));
  EXPECT_EQ(TakenBy("targets: __ALL_PRUNABLE__, ignore: [Linear]"), kEmbedding);
  EXPECT_EQ(TakenBy("targets: __ALL__, ignore: [__ALL_PRUNABLE__]"), Names({kNorm0, kNorm1}));
}

TEST(TargetsTest, SayWhatIsLeftOutAndWhy) {
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan("sparsity: 0.5, targets: 're:.*', ignore: [lm_head]"));
  std::vector<std::string> left;
  for (const v1::LeftOut& entry : plan.modifiers(0).left_out()) left.push_back(entry.name() + ": " + entry.reason());
  constexpr char kBias[] = ": a bias, which only its own name or an expression with \"bias\" takes";
  EXPECT_THAT(left,
              ElementsAre(absl::StrCat(kEmbedding, ": ignored by `lm_head`"),
                          "model.ids: dtype I64 cannot be pruned (F64, F32, F16 and BF16 can)",
                          absl::StrCat(kQBias0, kBias), absl::StrCat("model.layers.1.self_attn.q_proj.bias", kBias)));
}

TEST(TargetsTest, LeaveOutWhatHasNoElements) {  // known-bugs 20
  v1::ModelDescription model;
  AddParameter(model, "a.weight", {0, 8});
  AddParameter(model, "b.weight", {2, 8});
  EXPECT_EQ(TakenBy("targets: 're:.*'", model), "b.weight");
  EXPECT_THAT(Plan("sparsity: 0.5, targets: a.weight", model),
              HasReason(v1::ERROR_REASON_TARGET_UNMATCHED,
                        HasSubstr("`a.weight` matches nothing that can be pruned: `a.weight`: has no elements")));
}

TEST(TargetsTest, MustMatchSomething) {  // known-bugs 15, 18
  const auto status = [](absl::string_view target) {
    return Plan(absl::StrCat("sparsity: 0.5, targets: ['", target, "', lm_head]")).status();
  };
  const absl::Status anchored = status("re:layers.*");
  EXPECT_THAT(anchored, HasReason(v1::ERROR_REASON_TARGET_UNMATCHED));
  EXPECT_EQ(
      anchored.message(),
      "r.yaml:2:55: modifiers.MagnitudePruningModifier.targets[0]: `re:layers.*` matches no parameter of the model; "
      "expressions are anchored at the start of the name; did you mean `re:.*layers.*`?");
  EXPECT_EQ(MetadataOf(anchored, "target"), "re:layers.*");
  EXPECT_THAT(status("re:model.layers\\\\d+").message(), HasSubstr("matches no parameter of the model"));
  EXPECT_THAT(status("up_proj").message(), HasSubstr("did you mean `model.layers.0.mlp.up_proj`?"));
  EXPECT_THAT(status("model.layers.0.mlp.upproj").message(), HasSubstr("did you mean `model.layers.0.mlp.up_proj`?"));
  EXPECT_THAT(status("re:.*nothing"), HasReason(v1::ERROR_REASON_TARGET_UNMATCHED));
  EXPECT_THAT(status("__ALL_QUANTIZABLE__"),
              HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr("there are `__ALL__` and `__ALL_PRUNABLE__`")));
  EXPECT_THAT(status("re:(unclosed"),
              HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr("the regular expression cannot be read: missing")));
  EXPECT_THAT(Plan("sparsity: 0.5, targets: [lm_head], ignore: ['re:.*']"),
              HasReason(v1::ERROR_REASON_TARGET_UNMATCHED,
                        HasSubstr("nothing is left to prune: all that the targets match is ignored")));
}

TEST(TargetsTest, AllUselessOnesAreListed) {  // known-bugs 15
  const absl::Status status = Plan("sparsity: 0.5, targets: ['re:x.*', 're:y.*', lm_head, zz]").status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("`re:x.*`"), HasSubstr("`re:y.*`"), HasSubstr("`zz`")));
}

TEST(TargetsTest, RefuseDtypesByName) {
  EXPECT_THAT(Plan("sparsity: 0.5, targets: [model.ids, lm_head]"),
              HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE,
                        HasSubstr("`model.ids` matches only what cannot be pruned: `model.ids`: dtype I64 cannot be "
                                  "pruned (F64, F32, F16 and BF16 can)")));
  v1::ModelDescription model;
  AddParameter(model, "a.weight", {2, 8}, v1::LAYER_KIND_LINEAR, v1::DTYPE_F8_E4M3);
  AddParameter(model, "b.weight", {2, 8}, v1::LAYER_KIND_LINEAR, v1::DTYPE_F8_E4M3);
  const absl::Status status = Plan("sparsity: 0.5, targets: 're:.*weight'", model).status();
  EXPECT_THAT(status,
              HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE, HasSubstr("`a.weight`, `b.weight`: dtype F8_E4M3")));
  EXPECT_EQ(MetadataOf(status, "parameter"), "a.weight");
  EXPECT_THAT(Plan("sparsity: 0.5, targets: 're:.*_proj.b'"),
              HasReason(v1::ERROR_REASON_TARGET_UNMATCHED, HasSubstr("a bias, which only its own name")));
}

TEST(TargetsTest, NeedRowsThatFit) {  // known-bugs 16
  v1::ModelDescription model;
  AddParameter(model, "conv.weight", {4, 3, 2, 2}, v1::LAYER_KIND_CONV);           // rows of 12
  AddParameter(model, "c_attn.weight", {8, 6}, v1::LAYER_KIND_TRANSPOSED_LINEAR);  // columns of 8
  AddParameter(model, "eight.weight", {5, 8});
  AddParameter(model, "experts.w1", {2, 8, 8}, v1::LAYER_KIND_FUSED_EXPERTS);
  AddParameter(model, "six.weight", {8, 6});
  const auto plan = [&](absl::string_view targets, absl::string_view structure) {
    return Plan(absl::StrCat("targets: [", targets, "], mask_structure: '", structure, "'"), model);
  };
  EXPECT_OK(plan("conv, c_attn, eight", "2:4"));
  const absl::Status status = plan("six, eight", "2:4").status();
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE));
  EXPECT_EQ(
      status.message(),
      "r.yaml:2:3: modifiers.MagnitudePruningModifier: cannot prune `six.weight`: a row has 6 elements, not a multiple "
      "of 4; put them under `ignore`");
  EXPECT_EQ(MetadataOf(status, "parameter"), "six.weight");
  EXPECT_OK(plan("six", "1:3"));
  EXPECT_THAT(plan("conv", "2:8"), HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE, HasSubstr("a row has 12 elements")));
  EXPECT_THAT(plan("c_attn", "1:3"), HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE, HasSubstr("a row has 8 elements")));
  EXPECT_THAT(plan("experts.w1", "2:4"),
              HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE,
                        HasSubstr("2:4 works along the input dimension, and which one that is is not known here")));
}

TEST(TargetsTest, WarnOfIgnoresThatProtectNothing) {  // known-bugs 18
  v1::ModelDescription model;
  AddParameter(model, "language_model.lm_head.weight", {8, 8});
  AddParameter(model, "language_model.q_proj.weight", {8, 8});
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan("sparsity: 0.5, targets: ['re:.*'], ignore: [lm_head]", model));
  EXPECT_THAT(
      plan.warnings(),
      ElementsAre("2:74: modifiers.MagnitudePruningModifier.ignore[0]: `lm_head` matches no parameter of the model, "
                  "so it protects nothing; did you mean `language_model.lm_head`?"));
  EXPECT_EQ(plan.modifiers(0).parameters_size(), 2);  // no implicit skips
}

TEST(TargetsTest, WarnThatEmbeddingsAreTaken) {
  ASSERT_OK_AND_ASSIGN(const v1::Plan plan, Plan("sparsity: 0.5, targets: __ALL_PRUNABLE__"));
  ASSERT_EQ(plan.warnings_size(), 1);
  EXPECT_THAT(plan.warnings(0), HasSubstr("takes the embeddings too, which SparseML's does not: "
                                          "`model.embed_tokens.weight`; put them under `ignore` to keep them"));
}

TEST(TargetsTest, StopExpressionsThatTakeForEver) {
  v1::ModelDescription model;
  AddParameter(model, std::string(60, 'a') + "!b.weight", {2, 2});
  EXPECT_THAT(Plan("sparsity: 0.5, targets: 're:(a+)+(a+)+(a+)+b$'", model),
              HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr("needs too many steps")));
}

TEST(TargetsTest, RefuseModelsThatLie) {
  v1::ModelDescription model;
  AddParameter(model, "a.weight", {int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_THAT(Plan("sparsity: 0.5, targets: a", model),
              HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, HasSubstr("a.weight")));
  model.Clear();
  AddParameter(model, "a.weight", {-1, 2});
  EXPECT_THAT(Plan("sparsity: 0.5, targets: a", model), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID));
  model.Clear();
  AddParameter(model, "a.weight", {2, 2});
  AddParameter(model, "a.weight", {2, 2});
  EXPECT_THAT(Plan("sparsity: 0.5, targets: a", model),
              HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, HasSubstr("twice")));
}

}  // namespace
}  // namespace espalier
