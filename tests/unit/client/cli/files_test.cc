#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/file_writer.h"
#include "client/cli/spec_options.h"
#include "client/cli/state_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"

namespace espalier::cli {
namespace {

using ::espalier::testing::HasReason;
using ::espalier::testing::ReadFile;
using ::espalier::testing::TempDir;
using ::testing::HasSubstr;

size_t Entries(const TempDir& dir) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir.path()), {}));
}

TEST(FileWriter, IsCompleteOrAbsent) {
  const TempDir dir;
  {
    ASSERT_OK_AND_ASSIGN(const auto file, FileWriter::Open(dir / "a.npy"));
    EXPECT_OK(file->Write("half"));
  }
  EXPECT_EQ(Entries(dir), 0u);
  {
    ASSERT_OK_AND_ASSIGN(const auto file, FileWriter::Open(dir / "a.npy"));
    EXPECT_OK(file->Write("who"));
    EXPECT_OK(file->Write("le"));
    EXPECT_OK(file->Commit());
  }
  EXPECT_EQ(Entries(dir), 1u);
  EXPECT_EQ(ReadFile(dir / "a.npy"), "whole");
  struct stat info;
  ASSERT_EQ(stat((dir / "a.npy").c_str(), &info), 0);
  EXPECT_NE(info.st_mode & S_IRUSR, 0u);
  EXPECT_THAT(FileWriter::Open(dir / "no/such/a.npy"),
              HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, HasSubstr("no/such/a.npy")));
}

TEST(StateDir, TemporaryOneGoesUnlessKept) {
  std::string path;
  {
    ASSERT_OK_AND_ASSIGN(const auto state, StateDir::Open(""));
    path = state->path();
    EXPECT_TRUE(std::filesystem::is_directory(path));
    espalier::testing::WriteFile(state->Log("worker-0"), "x");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  {
    ASSERT_OK_AND_ASSIGN(const auto state, StateDir::Open(""));
    path = state->path();
    state->Keep();
  }
  EXPECT_TRUE(std::filesystem::remove_all(path) > 0);
}

// A test in a TMPDIR of its own.
class TemporaryState : public ::testing::Test {
 protected:
  TemporaryState() { setenv("TMPDIR", tmp_.path().c_str(), 1); }
  ~TemporaryState() override {
    if (before_) {
      setenv("TMPDIR", before_->c_str(), 1);
    } else {
      unsetenv("TMPDIR");
    }
  }
  std::vector<std::string> Left() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(tmp_.path())) out.push_back(entry.path().string());
    return out;
  }
  const char* given_ = getenv("TMPDIR");
  const std::optional<std::string> before_ = given_ == nullptr ? std::nullopt : std::optional<std::string>(given_);
  const TempDir tmp_;
};

TEST_F(TemporaryState, TheNextOneRemovesWhatAKilledOneLeft) {
  const pid_t child = fork();
  if (child == 0) {
    // Ends without destructors, as after kill -9.
    const auto state = StateDir::Open("");
    if (state.ok()) espalier::testing::WriteFile((*state)->Log("worker-0"), "x");
    _exit(state.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(Left().size(), 1u);
  ASSERT_OK_AND_ASSIGN(const auto state, StateDir::Open(""));
  EXPECT_THAT(Left(), ::testing::ElementsAre(state->path()));
}

TEST_F(TemporaryState, WhatLivesIsKeptOrIsNotOursStays) {
  std::filesystem::create_directory(tmp_ / "espalier-run-foreign");
  std::string kept;
  {
    ASSERT_OK_AND_ASSIGN(const auto state, StateDir::Open(""));
    kept = state->path();
    state->Keep();
  }
  ASSERT_OK_AND_ASSIGN(const auto first, StateDir::Open(""));
  ASSERT_OK_AND_ASSIGN(const auto second, StateDir::Open(""));
  EXPECT_THAT(Left(),
              ::testing::UnorderedElementsAre(tmp_ / "espalier-run-foreign", kept, first->path(), second->path()));
}

TEST(StateDir, ChosenOneStays) {
  const TempDir dir;
  { ASSERT_OK(StateDir::Open(dir / "a/b")); }
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a/b"));
  espalier::testing::WriteFile(dir / "file", "x");
  EXPECT_THAT(StateDir::Open(dir / "file/b"), HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, HasSubstr("--state-dir")));
}

TEST(Spec, ReadsTheRecipeAndMakesPathsAbsolute) {
  const TempDir dir;
  espalier::testing::WriteFile(dir / "r.yaml", "a: 1\n");
  SpecOptions options;
  options.recipes = {dir / "r.yaml"};
  options.model = "model/../other";
  options.workers = 3;
  ASSERT_OK_AND_ASSIGN(const v1::RunSpec spec, MakeSpec(options));
  EXPECT_EQ(spec.recipe(), "a: 1\n");
  EXPECT_EQ(spec.recipe_name(), options.recipes[0]);
  EXPECT_EQ(spec.then_size(), 0);
  EXPECT_EQ(spec.model_path(), (std::filesystem::current_path() / "other").string());
  EXPECT_EQ(spec.output_path(), "");
  EXPECT_EQ(spec.world_size(), 3);
  for (const std::string& bad : {dir / "none.yaml", dir.path()}) {
    options.recipes = {bad};
    EXPECT_THAT(MakeSpec(options), HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr(bad)));
  }
}

TEST(Spec, FurtherRecipesFollowInOrder) {
  const TempDir dir;
  SpecOptions options;
  for (const char* name : {"a.yaml", "b.yaml", "c.yaml"}) {
    options.recipes.push_back(dir / name);
    espalier::testing::WriteFile(options.recipes.back(), name);
  }
  ASSERT_OK_AND_ASSIGN(const v1::RunSpec spec, MakeSpec(options));
  EXPECT_EQ(spec.recipe(), "a.yaml");
  ASSERT_EQ(spec.then_size(), 2);
  EXPECT_EQ(spec.then(0).recipe(), "b.yaml");
  EXPECT_EQ(spec.then(0).recipe_name(), options.recipes[1]);
  EXPECT_EQ(spec.then(1).recipe(), "c.yaml");
  options.recipes = {"-", options.recipes[0], "-"};
  EXPECT_THAT(MakeSpec(options), HasReason(v1::ERROR_REASON_REQUEST_INVALID, HasSubstr("standard input")));
}

}  // namespace
}  // namespace espalier::cli
