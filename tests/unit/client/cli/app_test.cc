#include <stdlib.h>

#include <algorithm>
#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/commands.h"
#include "client/cli/completion.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"

namespace espalier::cli {
namespace {

using ::espalier::testing::ReadFile;
using ::espalier::testing::TempDir;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

class AppTest : public ::testing::Test {
 protected:
  std::vector<const CLI::App*> Commands() const {
    const CLI::App& app = *app_;
    return app.get_subcommands([](const CLI::App*) { return true; });
  }
  static std::set<std::string> OptionsOf(const CLI::App& command) {
    std::set<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.insert("--" + name);
    }
    names.erase("--help");
    return names;
  }
  std::string Parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    try {
      app_->parse(words);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  Invocation invocation_;
  const std::unique_ptr<CLI::App> app_ = MakeApp(invocation_);
};

TEST_F(AppTest, EveryHelpHasAnExampleThatParses) {
  ASSERT_EQ(Commands().size(), 17u);
  for (const CLI::App* command : Commands()) {
    EXPECT_THAT(command->help(), HasSubstr("Example:\n  ")) << command->get_name();
    EXPECT_FALSE(command->get_description().empty());
    // The example up to the first shell operator is a command line of ours.
    const std::string footer = command->get_footer();
    std::smatch found;
    ASSERT_TRUE(std::regex_search(footer, found, std::regex("espalier (" + command->get_name() + "[^|>&)\n]*)")))
        << footer;
    std::string line = found[1];
    line = std::regex_replace(line, std::regex("'([^' ]*) ([^' ]*)'"), "$1_$2");
    EXPECT_EQ(Parse(absl::StrSplit(line, ' ', absl::SkipEmpty())), "") << line;
  }
}

TEST_F(AppTest, TakesTheCoordinatorFromTheEnvironment) {
  setenv("ESPALIER_COORDINATOR", "10.0.0.7:1", 1);
  Invocation invocation;
  const auto app = MakeApp(invocation);
  unsetenv("ESPALIER_COORDINATOR");
  EXPECT_EQ(app->get_subcommand("runs")->get_option("--coordinator")->get_envname(), "ESPALIER_COORDINATOR");
  EXPECT_EQ(app->get_subcommand("runs")->get_option("--coordinator")->get_default_str(), "127.0.0.1:4770");
}

TEST_F(AppTest, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(Parse({}), "");
  EXPECT_NE(Parse({"prune"}), "");
  EXPECT_THAT(Parse({"run", "r.yaml"}), HasSubstr("--model"));
  EXPECT_THAT(Parse({"run", "r.yaml", "--model", "m", "--sparsity", "1"}), HasSubstr("--sparsity"));
  EXPECT_THAT(Parse({"run", "r.yaml", "--model", "m", "--workers", "0"}), HasSubstr("--workers"));
  EXPECT_THAT(Parse({"report", "a", "--mode", "fast"}), HasSubstr("--mode"));
}

TEST_F(AppTest, RunWithoutOutputSaysSo) {
  ASSERT_EQ(Parse({"run", "r.yaml", "--model", "m"}), "");
  EXPECT_THAT(invocation_.body(),
              espalier::testing::HasReason(v1::ERROR_REASON_REQUEST_INVALID, HasSubstr("--output")));
}

TEST(ErrorText, IsOneLineWithTheReason) {
  EXPECT_EQ(ErrorText(MakeError(v1::ERROR_REASON_OUTPUT_EXISTS, "out exists; use --overwrite")),
            "espalier: out exists; use --overwrite (OUTPUT_EXISTS)\n");
  EXPECT_EQ(ErrorText(MakeError(v1::ERROR_REASON_RECIPE_INVALID, "a:1: x\na:2: y")),
            "espalier: a:1: x\n  a:2: y (RECIPE_INVALID)\n");
}

class ReferenceTest : public AppTest {
 protected:
  // The part of the page under "### name" or "## name".
  std::string Section(const std::string& heading) const {
    const size_t begin = page_.find("\n" + heading + "\n");
    if (begin == std::string::npos) return "";
    const size_t end = page_.find("\n##", begin + heading.size() + 1);
    return page_.substr(begin, end == std::string::npos ? end : end - begin);
  }
  const std::string page_ = ReadFile(ESPALIER_SOURCE_DIR "/docs/reference.md");
};

TEST_F(ReferenceTest, DescribesEveryOptionAndNoOther) {
  for (const CLI::App* command : Commands()) {
    const std::string section = Section("### " + command->get_name());
    ASSERT_FALSE(section.empty()) << command->get_name();
    EXPECT_THAT(section, HasSubstr("```sh\n")) << command->get_name() << " has no example";
    std::set<std::string> described;
    const std::regex option("--[a-z][a-z0-9-]*");
    for (auto it = std::sregex_iterator(section.begin(), section.end(), option); it != std::sregex_iterator(); ++it) {
      described.insert(it->str());
    }
    EXPECT_THAT(described, ElementsAreArray(OptionsOf(*command))) << command->get_name();
  }
}

TEST_F(ReferenceTest, TheErrorTableIsTheProgramsTable) {
  std::map<std::string, std::vector<std::string>> rows;
  for (const absl::string_view line : absl::StrSplit(Section("## Errors"), '\n')) {
    std::vector<std::string> cells;
    for (const absl::string_view cell : absl::StrSplit(line, '|')) {
      cells.emplace_back(absl::StripAsciiWhitespace(cell));
    }
    if (cells.size() == 7 && absl::StartsWith(cells[1], "`")) rows[cells[1].substr(1, cells[1].size() - 2)] = cells;
  }
  EXPECT_EQ(rows.size(), static_cast<size_t>(v1::ErrorReason_ARRAYSIZE - 1));
  for (int i = 1; i < v1::ErrorReason_ARRAYSIZE; ++i) {
    const auto reason = static_cast<v1::ErrorReason>(i);
    const absl::Status error = MakeError(reason, "x");
    ASSERT_TRUE(rows.count(ReasonName(error))) << ReasonName(error);
    const auto& cells = rows[ReasonName(error)];
    EXPECT_EQ(cells[2], absl::StatusCodeToString(error.code())) << ReasonName(error);
    EXPECT_EQ(cells[3], absl::StrCat(ExitCodeOf(error))) << ReasonName(error);
    EXPECT_FALSE(cells[4].empty());
  }
}

TEST_F(AppTest, CompletionScriptsAreThoseInTheTree) {
  EXPECT_EQ(BashCompletion(*app_), ReadFile(ESPALIER_SOURCE_DIR "/client/completions/espalier.bash"))
      << "run: espalier completion bash > client/completions/espalier.bash";
  EXPECT_EQ(ZshCompletion(*app_), ReadFile(ESPALIER_SOURCE_DIR "/client/completions/_espalier"))
      << "run: espalier completion zsh > client/completions/_espalier";
}

TEST_F(AppTest, ZshCompletionNamesEveryOption) {
  const std::string script = ZshCompletion(*app_);
  for (const CLI::App* command : Commands()) {
    const size_t begin = script.find("    " + command->get_name() + ")\n");
    ASSERT_NE(begin, std::string::npos) << command->get_name();
    const std::string part = script.substr(begin, script.find(";;", begin) - begin);
    for (const std::string& option : OptionsOf(*command)) EXPECT_THAT(part, HasSubstr("'" + option + "["));
  }
}

// What bash offers for a line whose last word is being typed.
std::set<std::string> Complete(const std::string& script, const std::vector<std::string>& words) {
  const TempDir dir;
  espalier::testing::WriteFile(dir / "completion", script);
  std::string program =
      absl::StrCat("cd ", ESPALIER_SOURCE_DIR, "/docs; source ", dir / "completion", "; COMP_WORDS=(");
  for (const std::string& word : words) absl::StrAppend(&program, " '", word, "'");
  absl::StrAppend(&program, "); COMP_CWORD=", words.size() - 1, "; _espalier; printf '%s\\n' \"${COMPREPLY[@]}\" > ",
                  dir / "out");
  espalier::testing::WriteFile(dir / "program", program);
  EXPECT_EQ(system(absl::StrCat("bash -u ", dir / "program").c_str()), 0);
  std::set<std::string> replies;
  for (const absl::string_view line : absl::StrSplit(ReadFile(dir / "out"), '\n', absl::SkipEmpty())) {
    replies.emplace(line);
  }
  return replies;
}

TEST_F(AppTest, BashCompletes) {
  const std::string script = BashCompletion(*app_);
  std::vector<std::string> names = {"--help", "--version"};
  for (const CLI::App* command : Commands()) {
    names.push_back(command->get_name());
    const std::set<std::string> options = Complete(script, {"espalier", command->get_name(), "--"});
    EXPECT_THAT(options, IsSupersetOf(OptionsOf(*command))) << command->get_name();
  }
  EXPECT_THAT(Complete(script, {"espalier", ""}), ::testing::UnorderedElementsAreArray(names));
  EXPECT_THAT(Complete(script, {"espalier", "ru"}), UnorderedElementsAre("run", "runs"));
  EXPECT_THAT(Complete(script, {"espalier", "report", "x", "--mode", "g"}), UnorderedElementsAre("gather"));
  EXPECT_THAT(Complete(script, {"espalier", "run", "refer"}), UnorderedElementsAre("reference.md"));
  EXPECT_THAT(Complete(script, {"espalier", "run", "--workers", ""}), ::testing::IsEmpty());
  EXPECT_THAT(Complete(script, {"espalier", "completion", ""}), UnorderedElementsAre("bash", "zsh"));
}

}  // namespace
}  // namespace espalier::cli
