#include "proto/support/names.h"

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using testing::HasReason;

// known-bugs 28
TEST(NamesTest, WrapperTokensGoWhereverTheyStand) {
  EXPECT_EQ(StripWrapperTokens("_fsdp_wrapped_module.model._orig_mod.layers.0.weight"), "model.layers.0.weight");
  EXPECT_EQ(StripWrapperTokens("a._checkpoint_wrapped_module._checkpoint_wrapped_module.b._forward_module"), "a.b");
  EXPECT_EQ(StripWrapperTokens("my_orig_mod.weight"), "my_orig_mod.weight");
  EXPECT_EQ(StripWrapperTokens("plain.weight"), "plain.weight");
}

// known-bugs 28
TEST(NamesTest, LeadingModuleGoesOnlyWhenEveryNameHasIt) {
  ASSERT_OK_AND_ASSIGN(auto all, CanonicalNames({"module.a.weight", "module.module.b.weight"}));
  EXPECT_THAT(all, ElementsAre("a.weight", "module.b.weight"));
  ASSERT_OK_AND_ASSIGN(auto some, CanonicalNames({"module.a.weight", "head.weight"}));
  EXPECT_THAT(some, ElementsAre("module.a.weight", "head.weight"));
  ASSERT_OK_AND_ASSIGN(auto inner, CanonicalNames({"a.module.weight"}));
  EXPECT_THAT(inner, ElementsAre("a.module.weight"));
  ASSERT_OK_AND_ASSIGN(auto none, CanonicalNames({}));
  EXPECT_TRUE(none.empty());
}

TEST(NamesTest, TwoNamesThatBecomeOneAreRefused) {
  EXPECT_THAT(CanonicalNames({"a._orig_mod.weight", "a.weight"}),
              HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, ::testing::HasSubstr("a._orig_mod.weight")));
  EXPECT_THAT(CanonicalNames({"_orig_mod"}), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID));
}

TEST(NamesTest, ResourceNames) {
  EXPECT_EQ(RunName("r1"), "runs/r1");
  EXPECT_EQ(OperationName("runs/r1", "o"), "runs/r1/operations/o");
  ASSERT_OK_AND_ASSIGN(std::string id, ParseRunName("runs/r-1"));
  EXPECT_EQ(id, "r-1");
  ASSERT_OK_AND_ASSIGN(id, ParseRunName("r-1"));
  EXPECT_EQ(id, "r-1");
  for (const char* bad : {"", "runs/", "runs/A", "runs/a/b", "workers/a", "runs/-a"}) {
    EXPECT_THAT(ParseRunName(bad), HasReason(v1::ERROR_REASON_REQUEST_INVALID)) << bad;
  }
  ASSERT_OK_AND_ASSIGN(auto operation, ParseOperationName("runs/r/operations/o-1"));
  EXPECT_EQ(operation, std::pair(std::string("runs/r"), std::string("o-1")));
  EXPECT_THAT(ParseOperationName("runs/r"), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

}  // namespace
}  // namespace espalier
