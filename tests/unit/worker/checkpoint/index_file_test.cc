#include "worker/checkpoint/index_file.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using testing::HasReason;
using ::testing::HasSubstr;

TEST(Index, ReadsWhatItWrites) {
  const CheckpointIndex index = {.weight_map = {{"b", "2.safetensors"}, {"a", "1.safetensors"}}, .total_size = 12};
  ASSERT_OK_AND_ASSIGN(const CheckpointIndex read, ParseIndex(MakeIndex(index), "i"));
  EXPECT_EQ(read.weight_map, index.weight_map);
  EXPECT_EQ(read.total_size, 12);
}

TEST(Index, OtherMetadataIsLetPass) {
  ASSERT_OK_AND_ASSIGN(
      const CheckpointIndex read,
      ParseIndex(R"({"metadata":{"total_size":1.5e3,"more":[1]},"weight_map":{"a":"x.safetensors"}})", "i"));
  EXPECT_FALSE(read.total_size.has_value());
}

struct BadIndex {
  const char* title;
  std::string text;
  const char* what;
};
void PrintTo(const BadIndex& bad, std::ostream* out) {
  *out << bad.title;
}

class BadIndexTest : public ::testing::TestWithParam<BadIndex> {};

TEST_P(BadIndexTest, IsRefusedByName) {
  EXPECT_THAT(
      ParseIndex(GetParam().text, "dir/index.json"),
      HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, AllOf(HasSubstr("dir/index.json"), HasSubstr(GetParam().what))));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadIndexTest,
    ::testing::Values(BadIndex{"Empty", "", "not valid JSON"}, BadIndex{"List", "[]", "not an object"},
                      BadIndex{"NoMap", "{}", "weight_map"}, BadIndex{"MapEmpty", R"({"weight_map":{}})", "empty"},
                      BadIndex{"MapList", R"({"weight_map":[]})", "weight_map"},
                      BadIndex{"EntryNumber", R"({"weight_map":{"a":1}})", "not a file name"},
                      BadIndex{"Twice", R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", "\"a\" twice"},
                      BadIndex{"TwiceAtTheTop", R"({"weight_map":{},"weight_map":{}})", "twice"},
                      BadIndex{"BadUtf8", "{\"weight_map\":{\"a\xff\":\"x.safetensors\"}}", "not valid JSON"},
                      BadIndex{"NulAfterTheEnd", std::string("{\"weight_map\":{}}\0x", 19), "a NUL"},
                      BadIndex{"Outside", R"({"weight_map":{"a":"../x.safetensors"}})", "same folder"},
                      BadIndex{"Absolute", R"({"weight_map":{"a":"/etc/x.safetensors"}})", "same folder"},
                      BadIndex{"SubFolder", R"({"weight_map":{"a":"s/../../x.safetensors"}})", "same folder"},
                      BadIndex{"OtherFile", R"({"weight_map":{"a":"passwd"}})", "same folder"},
                      BadIndex{"Nul", R"({"weight_map":{"a":"x\u0000.safetensors"}})", "same folder"},
                      BadIndex{"Deep", "{\"weight_map\":" + std::string(100'000, '[') + "}", "64 deep"}),
    [](const auto& info) { return std::string(info.param.title); });

}  // namespace
}  // namespace espalier
