// Every recipe that people are shown works: the YAML blocks of docs/recipes.md and README.md, and examples/.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "server/recipe/planner.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/recipe/test_model.h"

namespace espalier {
namespace {

using ::espalier::testing::IsOk;

const std::filesystem::path kRoot = ESPALIER_SOURCE_DIR;

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::stringstream out;
  out << file.rdbuf();
  return out.str();
}

// Name and text of each block between ```yaml and ```.
std::vector<std::pair<std::string, std::string>> YamlBlocks(const std::filesystem::path& path) {
  std::vector<std::pair<std::string, std::string>> out;
  bool inside = false;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(Read(path), '\n')) {
    ++number;
    if (line == "```yaml") {
      inside = true;
      out.emplace_back(absl::StrCat(path.filename().string(), ":", number), "");
    } else if (absl::StartsWith(line, "```")) {
      inside = false;
    } else if (inside) {
      absl::StrAppend(&out.back().second, line, "\n");
    }
  }
  return out;
}

void ExpectPlans(const std::vector<std::pair<std::string, std::string>>& recipes) {
  PlanOptions options;
  options.optimizer_steps_per_epoch = 100;
  for (const auto& [name, text] : recipes) {
    EXPECT_THAT(MakePlan(text, name, testing::SmallModel(), options), IsOk());
  }
}

TEST(DocumentsTest, BlocksOfTheDocuments) {
  const auto recipes = YamlBlocks(kRoot / "docs" / "recipes.md");
  EXPECT_EQ(recipes.size(), 7U);
  ExpectPlans(recipes);
  const auto readme = YamlBlocks(kRoot / "README.md");
  EXPECT_EQ(readme.size(), 1U);
  ExpectPlans(readme);
}

TEST(DocumentsTest, Examples) {
  std::vector<std::pair<std::string, std::string>> recipes;
  for (const char* folder : {"recipes", "smollm2"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kRoot / "examples" / folder)) {
      if (entry.path().extension() == ".yaml")
        recipes.emplace_back(entry.path().filename().string(), Read(entry.path()));
    }
  }
  EXPECT_GE(recipes.size(), 10U);
  ExpectPlans(recipes);
}

}  // namespace
}  // namespace espalier
