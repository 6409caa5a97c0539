#include "server/recipe/variables.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/recipe/yaml_reader.h"
#include "tests/support/oracles.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Every entry of a mapping is a variable; evaluates that of `key`.
struct Evaluated {
  std::string value;  // "!" when there is none
  std::string errors;
};

Evaluated Evaluate(absl::string_view yaml, absl::string_view key) {
  Problems problems({"r.yaml"});
  const YamlNode root = ReadYaml(yaml, problems).value();
  Variables variables(problems);
  for (size_t i = 0; i < root.keys.size(); ++i) variables.Define(root.keys[i], root.children[i]);
  const auto value = variables.Evaluate(*root.Find(key), key);
  return {value ? value->text : "!", std::string(problems.ToStatus().message())};
}

std::string ValueOf(absl::string_view expression, absl::string_view variables = "") {
  return Evaluate(absl::StrCat(variables, "\nk: \"eval(", expression, ")\"\n"), "k").value;
}

std::string ErrorOf(absl::string_view expression, absl::string_view variables = "") {
  return Evaluate(absl::StrCat("k: \"eval(", expression, ")\"\n", variables, "\n"), "k").errors;
}

TEST(ExpressionTest, FollowsPython) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"2*3", "6"},
      {"1 + 2 * 3", "7"},
      {"(1 + 2) * 3", "9"},
      {"10 / 4", "2.5"},
      {"7 // 2", "3"},
      {"-7 // 2", "-4"},
      {"-7 % 3", "2"},
      {"7 % -3", "-2"},
      {"2 ** 3 ** 2", "512"},
      {"-2 ** 2", "-4"},
      {"2 ** -2", "0.25"},
      {"--3", "3"},
      {"+3", "3"},
      {"0.2+0.7", "0.9"},
      {"1 - 0.9", "0.1"},
      {"0.1 * 3", "0.3"},
      {"1e3", "1000"},
      {".5e1", "5"},
      {"min(3, 1, 2)", "1"},
      {"max(3, 1)", "3"},
      {"abs(-2.5)", "2.5"},
      {"round(2.5)", "2"},
      {"round(3.5)", "4"},
      {"round(0.125, 2)", "0.12"},
      {"floor(-0.5)", "-1"},
      {"ceil(0.5)", "1"},
      {"eval(2 * 3) + 1", "7"},
      {"1 / 3 * 3", "1"},
      {"2 * (3 + (4 - 1))", "12"},
      {"5.5 % 2", "1.5"},
      {"1-1", "0"},
      {"  2  ", "2"},
  };
  for (const auto& [expression, want] : cases) EXPECT_EQ(ValueOf(expression), want) << expression;
}

TEST(ExpressionTest, SaysWhatItCannotRead) {  // known-bugs 82
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1/0", "division by zero"},
      {"1//0", "division by zero"},
      {"1 % (1 - 1)", "division by zero"},
      {"0 ** -1", "division by zero"},
      {"2 ** 0.5", "an exponent is a whole number, not 0.5"},
      {"10 ** 1000", "a result is too large or too fine to be computed exactly"},
      {"1 +", "the expression ends too early"},
      {"", "the expression ends too early"},
      {"1 2", "cannot read `2`"},
      {"(1", "has no closing `)`"},
      {"max()", "`max` does not take 0 arguments"},
      {"abs(1, 2)", "`abs` does not take 2 arguments"},
      {"round(1, 0.5)", "`round` takes 0 to 30 decimal places, not 0.5"},
      {"1.2.3", "cannot read `.3`"},
      {"os", "the variable `os` is not defined"},
      {"a.b", "the variable `a` is not defined"},
      {"x; 1", "the variable `x` is not defined"},
      {"__import__('os')", "there is no function `__import__`; there are abs, ceil, eval, floor, max, min, round"},
      {"mni(1)", "did you mean `min`?"},
      {"[1]", "cannot read `[1]`"},
      {"1 < 2", "cannot read `< 2`"},
  };
  for (const auto& [expression, want] : cases) {
    EXPECT_THAT(ErrorOf(expression), AllOf(StartsWith("r.yaml:1:4: k: "), HasSubstr(want))) << expression;
  }
}

TEST(ExpressionTest, IsBounded) {  // known-bugs 82
  std::string deep = "1";
  for (int i = 0; i < 200; ++i) deep = absl::StrCat("(", deep, ")");
  EXPECT_THAT(ErrorOf(deep), HasSubstr("expressions and variables are nested more than 100 deep"));
  EXPECT_THAT(ErrorOf(std::string(900, '-') + "1"), HasSubstr("nested more than 100 deep"));
  EXPECT_THAT(ErrorOf(absl::StrCat("1", std::string(1000, ' '))),
              HasSubstr("an expression has at most 1000 characters, this one has 1001"));
  std::string chain = "v0: 1\n";
  for (int i = 1; i <= 200; ++i) absl::StrAppend(&chain, "v", i, ": eval(v", i - 1, " + 1)\n");
  EXPECT_THAT(ErrorOf("v200", chain), HasSubstr("nested more than 100 deep"));
  EXPECT_EQ(ValueOf("v90", chain), "91");
  std::string sum = "1";
  for (int i = 0; i < 400; ++i) sum += "+1";
  std::string much;
  for (int i = 0; i < 60; ++i) absl::StrAppend(&much, "m", i, ": \"eval(", sum, ")\"\n");
  std::string all = "m0";
  for (int i = 1; i < 60; ++i) absl::StrAppend(&all, "+m", i);
  EXPECT_THAT(ErrorOf(all, much), HasSubstr("the recipe computes more than 20000 operations"));
}

TEST(VariablesTest, AreResolvedByDependency) {
  // SparseML computes 44 here, in the order of the text.
  const nlohmann::json oracle = testing::SparsemlVectors()["eval_chain_bug"];
  ASSERT_EQ(oracle["out"]["a"], 44.0);
  std::string yaml;
  for (const auto& [key, value] : oracle["in"].items()) {
    absl::StrAppend(&yaml, key, ": ", value.is_string() ? value.get<std::string>() : value.dump(), "\n");
  }
  EXPECT_EQ(Evaluate(yaml, "a").value, "8");
  EXPECT_EQ(Evaluate(yaml, "b").value, "4");
}

TEST(VariablesTest, GiveWhatSparsemlGives) {
  int compared = 0;
  const nlohmann::json oracle = testing::SparsemlVectors();
  for (const nlohmann::json& entry : oracle["eval"]) {
    std::string yaml = absl::StrCat("k: \"", entry["in"].get<std::string>(), "\"\n");
    bool scalars = true;
    for (const auto& [key, value] : entry["args"].items()) {
      absl::StrAppend(&yaml, key, ": ", value.is_string() ? value.get<std::string>() : value.dump(), "\n");
      scalars = scalars && !value.is_array();
    }
    if (!scalars) continue;  // variables are single values here
    const auto& out = entry["out"];
    // Whole numbers are written without ".0".
    const std::string want = out.is_number() ? absl::StrCat(out.get<double>()) : out.get<std::string>();
    EXPECT_EQ(Evaluate(yaml, "k").value, want) << yaml;
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

TEST(VariablesTest, HaveTypesAndStandInsideText) {
  EXPECT_EQ(Evaluate("k: eval(x)\nx: linear\n", "k").value, "linear");
  EXPECT_EQ(Evaluate("k: 're:.*layers.eval(n)\\..*'\nn: 3\n", "k").value, "re:.*layers.3\\..*");
  EXPECT_EQ(Evaluate("k: eval(n)steps\nn: 120\n", "k").value, "120steps");
  EXPECT_EQ(Evaluate("k: eval(a)eval(b)\na: 1\nb: 2\n", "k").value, "12");
  EXPECT_EQ(Evaluate("k: 're:medieval(x)'\n", "k").value, "re:medieval(x)");
  EXPECT_EQ(Evaluate("k: eval(x + 1)\nx: linear\n", "k").errors,
            "r.yaml:1:4: k: in `eval(x + 1)`: cannot compute with the text `linear`");
  EXPECT_EQ(Evaluate("k: eval(x + 1)\nx: '2'\n", "k").errors,
            "r.yaml:1:4: k: in `eval(x + 1)`: cannot compute with `2` in quotes, which is text");
}

TEST(VariablesTest, NameTheKeyAndTheVariable) {  // known-bugs 82
  EXPECT_EQ(Evaluate("k: eval(prune_endd * 2)\nprune_end: 3\n", "k").errors,
            "r.yaml:1:4: k: in `eval(prune_endd * 2)`: the variable `prune_endd` is not defined; did you mean "
            "`prune_end`?");
  EXPECT_EQ(Evaluate("k: eval(a)\na: eval(a + 1)\n", "k").errors,
            "r.yaml:2:4: a: in `eval(a + 1)`: the variable `a` depends on itself (a -> a)");
  EXPECT_EQ(Evaluate("k: eval(a)\na: eval(b)\nb: eval(c)\nc: eval(a)\n", "k").errors,
            "r.yaml:4:4: c: in `eval(a)`: the variable `a` depends on itself (a -> b -> c -> a)");
  // Reported where it is wrong, once, however many use it.
  EXPECT_EQ(Evaluate("k: eval(a + a)\na: eval(1 / 0)\n", "k").errors,
            "r.yaml:2:4: a: in `eval(1 / 0)`: division by zero");
}

TEST(VariablesTest, TellsWhichAreNotUsed) {
  Problems problems({"r.yaml"});
  const YamlNode root = ReadYaml("a: eval(b)\nb: 1\nc: 2\nk: eval(c)\nd: eval(1/0)\n", problems).value();
  Variables variables(problems);
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_TRUE(variables.Define(name, *root.Find(name)));
  EXPECT_FALSE(variables.Define("a", *root.Find("b")));
  EXPECT_EQ(variables.Evaluate(*root.Find("k"), "k")->text, "2");
  EXPECT_THAT(variables.EvaluateUnused(), ElementsAre("a", "d"));
  EXPECT_THAT(problems.ToStatus().message(), HasSubstr("d: in `eval(1/0)`: division by zero"));
}

}  // namespace
}  // namespace espalier
