#include "worker/checkpoint/replace.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"
#include "worker/checkpoint/temp_directory.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using testing::HasReason;
using testing::ReadFile;
using testing::TempDir;
using testing::WriteFile;

class ReplaceTest : public ::testing::Test {
 protected:
  bool Exists(const std::string& name) { return fs::exists(dir_ / name); }
  TempDir dir_;
  const std::string target_ = dir_ / "out";
  const std::string temporary_ = TemporaryPath(target_, "runs/a/1");
};

TEST_F(ReplaceTest, ATokenIsMadeAName) {
  EXPECT_EQ(temporary_, dir_ / ".out.espalier-runs-a-1");
}

TEST_F(ReplaceTest, MovesToANameThatIsFree) {
  WriteFile(temporary_ + "/w", "new");
  EXPECT_OK(MoveIntoPlace(temporary_, target_, false));
  EXPECT_EQ(ReadFile(target_ + "/w"), "new");
  EXPECT_FALSE(fs::exists(temporary_));
}

TEST_F(ReplaceTest, ExchangesOnlyWhenAsked) {
  WriteFile(temporary_ + "/w", "new");
  WriteFile(target_ + "/w", "old");
  EXPECT_THAT(MoveIntoPlace(temporary_, target_, false), HasReason(v1::ERROR_REASON_OUTPUT_EXISTS));
  EXPECT_EQ(ReadFile(target_ + "/w"), "old");
  EXPECT_OK(MoveIntoPlace(temporary_, target_, true));
  EXPECT_EQ(ReadFile(target_ + "/w"), "new");
  EXPECT_EQ(ReadFile(temporary_ + "/w"), "old");
}

TEST_F(ReplaceTest, AReplacementCutShortIsMended) {
  WriteFile(temporary_ + "/w", "new");
  WriteFile(temporary_ + ".old/w", "old");
  MendReplaced(target_);
  EXPECT_EQ(ReadFile(target_ + "/w"), "old");
  EXPECT_FALSE(fs::exists(temporary_));
}

TEST_F(ReplaceTest, OneThatSomebodyIsAtIsNot) {
  auto held = *TempDirectory::Create(target_, "runs/a/1");
  WriteFile(temporary_ + ".old/w", "old");
  MendReplaced(target_);
  SweepTemporaries(target_);
  EXPECT_FALSE(Exists("out"));
  EXPECT_EQ(ReadFile(temporary_ + ".old/w"), "old");
}

TEST_F(ReplaceTest, WhatIsLeftOfAFinishedOneIsSwept) {
  WriteFile(target_ + "/w", "new");
  WriteFile(temporary_ + ".old/w", "old");
  SweepTemporaries(target_);
  EXPECT_EQ(ReadFile(target_ + "/w"), "new");
  EXPECT_FALSE(fs::exists(temporary_ + ".old"));
}

TEST_F(ReplaceTest, SweepsWhatNobodyHolds) {  // known-bugs 52
  auto held = *TempDirectory::Create(target_, "held");
  WriteFile(held->path() + "/w", "x");
  WriteFile(temporary_ + "/w", "left behind");
  WriteFile(dir_ / ".other.espalier-1/w", "of another target");
  SweepTemporaries(target_);
  EXPECT_TRUE(fs::exists(held->path() + "/w"));
  EXPECT_FALSE(fs::exists(temporary_));
  EXPECT_TRUE(Exists(".other.espalier-1"));
}

TEST_F(ReplaceTest, ATemporaryGoesUnlessItIsKept) {
  {
    auto directory = *TempDirectory::Create(target_, "t");
    WriteFile(directory->path() + "/w", "x");
    EXPECT_TRUE(SeesNonce(directory->path(), directory->nonce()));
    EXPECT_FALSE(SeesNonce(directory->path(), std::string(36, 'x')));
    EXPECT_FALSE(SeesNonce(dir_.path(), directory->nonce()));
    EXPECT_FALSE(RemoveUnlessHeld(directory->path()));
    EXPECT_THAT(TempDirectory::Create(target_, "t"), HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE));
    EXPECT_TRUE(fs::exists(directory->path() + "/w"));
  }
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

TEST_F(ReplaceTest, ALeftoverOfTheSameNameIsEmptied) {
  WriteFile(TemporaryPath(target_, "t") + "/w", "x");
  auto directory = *TempDirectory::Create(target_, "t");
  EXPECT_FALSE(fs::exists(directory->path() + "/w"));
}

}  // namespace
}  // namespace espalier
