#include "worker/checkpoint/path_roots.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using testing::HasReason;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

class PathRootsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(dir_ / "in/model/w", "x");
    WriteFile(dir_ / "inside/w", "x");  // begins like the root's name and is not in it
    WriteFile(dir_ / "out/w", "x");
  }
  PathRoots Roots() { return *PathRoots::Create({dir_ / "in"}); }
  std::string Real(const std::string& name) { return fs::canonical(dir_.path()).string() + "/" + name; }
  TempDir dir_;
};

TEST_F(PathRootsTest, WithoutRootsEverythingIsAllowed) {
  EXPECT_THAT(PathRoots().Resolve(dir_ / "out/w"), testing::IsOk());
}

TEST_F(PathRootsTest, ResolvesAndTests) {
  const PathRoots roots = Roots();
  EXPECT_EQ(*roots.Resolve(dir_ / "in/model/../model/./w"), Real("in/model/w"));
  EXPECT_EQ(*roots.Resolve(dir_ / "in"), Real("in"));
  for (const char* outside : {"out/w", "inside/w", "in/../out/w", "."}) {
    EXPECT_THAT(roots.Resolve(dir_ / outside), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED)) << outside;
  }
}

TEST_F(PathRootsTest, OfOutputsThatAreNotThereYet) {
  const PathRoots roots = Roots();
  EXPECT_EQ(*roots.Resolve(dir_ / "in/new/deep"), Real("in/new/deep"));
  EXPECT_EQ(*roots.Resolve(dir_ / "in/new/"), Real("in/new"));
  EXPECT_THAT(roots.Resolve(dir_ / "out/new"), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED));
  EXPECT_THAT(roots.Resolve(dir_ / "in/new/../../out"), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED));
}

TEST_F(PathRootsTest, LinksLeadNowhereElse) {
  const PathRoots roots = Roots();
  fs::create_symlink("../out", dir_ / "in/link");
  fs::create_symlink("model", dir_ / "in/fine");
  fs::create_symlink("nothing", dir_ / "in/dangling");
  EXPECT_EQ(*roots.Resolve(dir_ / "in/fine/w"), Real("in/model/w"));
  EXPECT_THAT(roots.Resolve(dir_ / "in/link/w"), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED));
  EXPECT_THAT(roots.Resolve(dir_ / "in/link/new"), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED));
  EXPECT_THAT(roots.Resolve(dir_ / "in/dangling"), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED, HasSubstr("nothing")));
}

TEST_F(PathRootsTest, NonsenseIsRefused) {
  EXPECT_THAT(PathRoots().Resolve(""), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  EXPECT_THAT(PathRoots().Resolve(absl::string_view("a\0b", 3)), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  EXPECT_THAT(PathRoots::Create({dir_ / "absent"}), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED, HasSubstr("absent")));
}

}  // namespace
}  // namespace espalier
