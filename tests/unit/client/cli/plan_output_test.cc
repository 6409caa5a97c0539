#include "client/cli/plan_output.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace espalier::cli {
namespace {

using ::testing::HasSubstr;

class PlanOutputTest : public ::testing::Test {
 protected:
  PlanOutputTest() {
    for (const char* name : {"a.weight", "b.weight"}) {
      v1::Parameter* parameter = model_.add_parameters();
      parameter->set_name(name);
      parameter->set_dtype(v1::DTYPE_BF16);
      parameter->add_shape(10);
      parameter->add_shape(4);
    }
    model_.set_total_bytes(160);
    model_.set_architecture("LlamaForCausalLM");
    plan_.add_stages()->set_name("prune");
    plan_.mutable_stages(0)->set_run_type(v1::RUN_TYPE_ONESHOT);
    plan_.mutable_stages(0)->set_run_type_inferred(true);
    v1::PlannedModifier* modifier = plan_.add_modifiers();
    modifier->set_type("MagnitudePruningModifier");
    modifier->set_method(v1::SELECTION_METHOD_MAGNITUDE);
    modifier->set_monotone(true);
    modifier->add_parameters("a.weight");
    modifier->add_parameters("b.weight");
    modifier->add_left_out()->set_name("lm_head.weight");
    modifier->mutable_left_out(0)->set_reason("ignored");
    v1::PlannedUpdate* update = plan_.add_updates();
    update->set_sparsity("0.5");
    update->add_targets(20);
    update->add_targets(19);
    plan_.set_pruned_parameters(2);
    plan_.set_pruned_elements(80);
    plan_.set_model_parameters(2);
    plan_.set_model_elements(80);
    plan_.add_warnings("`ignore: x` matches nothing");
  }
  std::string Text() { return PlanText(plan_, model_, "half.yaml", "/m"); }
  v1::Plan plan_;
  v1::ModelDescription model_;
};

TEST_F(PlanOutputTest, TextNamesEveryParameterAndWhy) {
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("prune (oneshot, as the recipe does not say)"));
  EXPECT_THAT(text, HasSubstr("MagnitudePruningModifier: magnitude, unstructured\n"));
  EXPECT_THAT(text, HasSubstr("1     0       0.5      39  80\n"));
  EXPECT_THAT(text, HasSubstr("b.weight   [10, 4]  BF16         40      19\n"));
  EXPECT_THAT(text, HasSubstr("lm_head.weight  ignored\n"));
  EXPECT_THAT(text, HasSubstr("note: `ignore: x` matches nothing\n"));
}

TEST_F(PlanOutputTest, ChainedRecipesAreNamed) {
  plan_.add_then()->set_recipe_name("more.yaml");
  plan_.add_stages()->set_name("prune");
  plan_.mutable_stages(1)->set_recipe(1);
  EXPECT_THAT(Text(), HasSubstr("recipe  half.yaml, then more.yaml\n"));
  EXPECT_THAT(Text(), HasSubstr("\nprune of more.yaml ("));
  const auto json = PlanJson(plan_, model_, "half.yaml", "/m");
  EXPECT_EQ(json["then"].dump(), R"(["more.yaml"])");
  EXPECT_EQ(json["stages"][0]["recipe"], 0);
  EXPECT_EQ(json["stages"][1]["recipe"], 1);
}

TEST_F(PlanOutputTest, TargetsThatTheDataDecides) {
  plan_.mutable_updates(0)->clear_targets();
  plan_.mutable_updates(0)->clear_sparsity();
  plan_.mutable_modifiers(0)->set_method(v1::SELECTION_METHOD_N_OF_M);
  plan_.mutable_modifiers(0)->mutable_structure()->set_n(2);
  plan_.mutable_modifiers(0)->mutable_structure()->set_m(4);
  EXPECT_THAT(Text(), HasSubstr("n of m, 2:4\n"));
  EXPECT_THAT(Text(), HasSubstr("by the data"));
  const auto json = PlanJson(plan_, model_, "half.yaml", "/m");
  EXPECT_TRUE(json["stages"][0]["modifiers"][0]["updates"][0]["target"].is_null());
  EXPECT_TRUE(json["stages"][0]["modifiers"][0]["parameters"][0]["target"].is_null());
}

TEST_F(PlanOutputTest, AGlobalTotalIsNoParametersTarget) {
  plan_.mutable_modifiers(0)->set_method(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE);
  plan_.mutable_updates(0)->clear_targets();
  plan_.mutable_updates(0)->add_targets(40);
  const auto json = PlanJson(plan_, model_, "half.yaml", "/m");
  EXPECT_EQ(json["stages"][0]["modifiers"][0]["updates"][0]["target"], 40);
  EXPECT_TRUE(json["stages"][0]["modifiers"][0]["parameters"][1]["target"].is_null());
}

TEST_F(PlanOutputTest, JsonHoldsTheSame) {
  const auto json = PlanJson(plan_, model_, "half.yaml", "/m");
  EXPECT_EQ(json["summary"]["pruned_elements"], 80);
  const auto& modifier = json["stages"][0]["modifiers"][0];
  EXPECT_EQ(modifier["type"], "MagnitudePruningModifier");
  EXPECT_EQ(modifier["parameters"][1].dump(),
            R"({"name":"b.weight","dtype":"BF16","shape":[10,4],"numel":40,"target":19})");
  EXPECT_EQ(modifier["left_out"][0]["reason"], "ignored");
  EXPECT_EQ(json["warnings"][0], "`ignore: x` matches nothing");
}

}  // namespace
}  // namespace espalier::cli
