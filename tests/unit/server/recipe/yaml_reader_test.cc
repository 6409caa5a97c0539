#include "server/recipe/yaml_reader.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/recipe/scalar.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(absl::string_view text) {
  Problems problems({"r.yaml"});
  ReadYaml(text, problems);
  return std::string(problems.ToStatus().message());
}

YamlNode Read(absl::string_view text) {
  Problems problems({"r.yaml"});
  std::optional<YamlNode> node = ReadYaml(text, problems);
  EXPECT_TRUE(problems.empty()) << problems.ToStatus();
  return node.value_or(YamlNode());
}

TEST(YamlReaderTest, KeepsOrderAndPlaces) {
  const YamlNode root = Read("a: 1\nb:\n  - x\n  - 'y z'\nc: {d: ~}\n");
  EXPECT_THAT(root.keys, ElementsAre("a", "b", "c"));
  EXPECT_EQ(root.key_marks[1].line, 2);
  EXPECT_EQ(root.key_marks[1].column, 1);
  const YamlNode& list = *root.Find("b");
  ASSERT_EQ(list.children.size(), 2U);
  EXPECT_EQ(list.children[1].text, "y z");
  EXPECT_TRUE(list.children[1].quoted);
  EXPECT_FALSE(list.children[0].quoted);
  EXPECT_EQ(list.children[1].mark.line, 4);
  EXPECT_EQ(list.children[1].mark.column, 5);
  EXPECT_EQ(root.Find("c")->Find("d")->kind, YamlNode::Kind::kNull);
  EXPECT_EQ(root.Find("nothing"), nullptr);
}

TEST(YamlReaderTest, ReadsJsonAndOneLeadingMarker) {
  EXPECT_EQ(Read("{\"a\":{\"b\":[1,2.5,\"x\",true,null]}}").Find("a")->Find("b")->children.size(), 5U);
  EXPECT_EQ(Read("{\n\t\"a\": \"b\\/c\"\n}").Find("a")->text, "b/c");
  EXPECT_EQ(Read("# note\n---\na: 1\n...\n# end\n").Find("a")->text, "1");
  EXPECT_EQ(Read("\xEF\xBB\xBF"
                 "a: 1\r\nb: 2\r\n")
                .Find("b")
                ->text,
            "2");
}

TEST(YamlReaderTest, ExpandsAliases) {
  const YamlNode root = Read("a: &x {k: [1, 2]}\nb: *x\n");
  EXPECT_EQ(root.Find("b")->Find("k")->children.size(), 2U);
  EXPECT_EQ(root.Find("b")->mark.line, 2);
}

struct BadText {
  std::string text;
  std::string error;
};

TEST(YamlReaderTest, RefusesWithTheReason) {
  constexpr char kSecond[] =
      "a second YAML document starts here and a recipe is one; of a file with front matter keep only the part between "
      "the two `---` lines";
  const std::vector<BadText> cases = {
      {"", "r.yaml: the recipe is empty"},  // known-bugs 76
      {" \n# only a note\n", "r.yaml: the recipe is empty"},
      {"---\ntitle: x\n---\n# A heading: [\n", absl::StrCat("r.yaml:3:1: ", kSecond)},
      {"a: 1\n--- b\n", absl::StrCat("r.yaml:2:1: ", kSecond)},
      {"a: 1\n...\nb: 1\n", absl::StrCat("r.yaml:3:1: ", kSecond)},
      {"---\n---\na: 1\n", absl::StrCat("r.yaml:2:1: ", kSecond)},
      {"+++\nx = 1\n+++\n", "r.yaml:1:1: TOML front matter (+++) is not read; a recipe is YAML or JSON"},
      {"a: 1\nb: 2\na: 3\n", "r.yaml:3:1: a: this key comes twice in one mapping"},  // known-bugs 81
      {"{x: 1, 'x': 2}\n", "r.yaml:1:8: x: this key comes twice in one mapping"},
      {"a: !Foo {}\n",
       "r.yaml:1:4: the YAML tag `!Foo` is not read; write a modifier as a key with its fields below it, without `!`"},
      {"a: &x {b: 1}\nc:\n  <<: *x\n",
       "r.yaml:3:3: merge keys (`<<`) are not read; write the fields out, or use an alias for a whole value"},
      {"a: &x [*x]\n", "r.yaml:1:8: the alias stands inside what it names"},
      {"[a]: 1\n", "r.yaml:1:1: a key is a single word, this one is a list"},
      {"~: 1\n", "r.yaml:1:1: a key is a single word, this one is nothing"},
      {"a: [1\n", "r.yaml:2:1: not YAML: end of sequence flow not found"},
      {"a: \x01\n", "r.yaml:1:4: the control character 0x01 does not belong into a recipe"},
      {"a: 1\nb: \x04\n", "r.yaml:2:4: the control character 0x04 does not belong into a recipe"},
      {"a: \xFF\n", "r.yaml:1:4: the byte 0xff is not UTF-8; save the recipe as UTF-8"},
      {"\xC3\xA9: \xED\xA0\x80\n", "r.yaml:1:4: the byte 0xed is not UTF-8; save the recipe as UTF-8"},
      {std::string("a\0b", 3), "r.yaml:1:2: the control character 0x00 does not belong into a recipe"},
  };
  for (const BadText& bad : cases) EXPECT_EQ(ErrorOf(bad.text), bad.error) << bad.text;
}

TEST(YamlReaderTest, IsBounded) {
  EXPECT_EQ(ErrorOf(std::string(kMaxRecipeBytes + 1, ' ')), "r.yaml: the recipe has 1048577 bytes, more than 1048576");
  EXPECT_THAT(ErrorOf(absl::StrCat("a: ", std::string(65, '['), std::string(65, ']'))),
              HasSubstr("r.yaml:1:67: nested more than 64 deep"));
  EXPECT_THAT(ErrorOf(std::string(500'000, '[')), HasSubstr("nested more than 64 deep"));
  // Ten billion values out of ten lines.
  std::string laughs = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 10; ++i) {
    absl::StrAppend(&laughs, "a", i, ": &a", i, " [");
    for (int j = 0; j < 10; ++j) absl::StrAppend(&laughs, j == 0 ? "" : ",", "*a", i - 1);
    laughs += "]\n";
  }
  EXPECT_THAT(ErrorOf(laughs), HasSubstr("too many values (aliases counted as often as they are used)"));
}

TEST(ScalarTest, HasOneReading) {  // known-bugs 81
  using Kind = Scalar::Kind;
  const std::vector<std::pair<std::string, Kind>> cases = {
      {"5e-1", Kind::kNumber},   {".5", Kind::kNumber},  {"1e-4", Kind::kNumber},    {"0.5", Kind::kNumber},
      {"012", Kind::kNumber},    {"1", Kind::kNumber},   {"'0.5'", Kind::kText},     {"\"1\"", Kind::kText},
      {"true", Kind::kBool},     {"False", Kind::kBool}, {"'true'", Kind::kText},    {"yes", Kind::kText},
      {"no", Kind::kText},       {"on", Kind::kText},    {"off", Kind::kText},       {"~", Kind::kNull},
      {"null", Kind::kNull},     {"", Kind::kNull},      {".nan", Kind::kNotFinite}, {"-.Inf", Kind::kNotFinite},
      {"NaN", Kind::kNotFinite}, {"0x10", Kind::kText},  {"0o17", Kind::kText},      {"1_000", Kind::kText},
      {"2:4", Kind::kText},      {"0,5", Kind::kText},   {"120steps", Kind::kText},  {"'null'", Kind::kText},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_EQ(ReadScalar(*Read(absl::StrCat("k: ", text, "\n")).Find("k")).kind, want) << text;
  }
}

}  // namespace
}  // namespace espalier
