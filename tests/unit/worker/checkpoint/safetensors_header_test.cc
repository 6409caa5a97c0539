#include "worker/checkpoint/safetensors_header.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/worker/checkpoint/model_files.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::HasReason;
using ::testing::HasSubstr;
using testing::MakeFile;
using testing::RawFile;
using testing::TensorJson;

absl::StatusOr<SafetensorsHeader> Parse(const std::string& file) {
  return ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()), "f.safetensors");
}

TEST(SafetensorsHeader, ReadsEveryDtypeWhereItLies) {  // known-bugs 51
  std::vector<testing::RawTensor> tensors;
  const std::pair<const char*, size_t> kDtypes[] = {
      {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8},     {"F32", 4},     {"I32", 4},
      {"U32", 4}, {"F16", 2}, {"BF16", 2},    {"I16", 2},     {"U16", 2},     {"BOOL", 1},
      {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
  };
  for (const auto& [dtype, size] : kDtypes) tensors.push_back({dtype, dtype, {3}, std::string(3 * size, 'x')});
  const std::string file = MakeFile(tensors);
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, Parse(file));
  ASSERT_EQ(header.tensors.size(), tensors.size());
  int64_t at = header.data_begin;
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(header.tensors[i].name, tensors[i].name);
    EXPECT_NE(header.tensors[i].dtype, v1::DTYPE_UNSPECIFIED);
    EXPECT_EQ(header.tensors[i].begin, at);
    at += static_cast<int64_t>(tensors[i].bytes.size());
    EXPECT_EQ(header.tensors[i].end, at);
  }
  EXPECT_EQ(at, static_cast<int64_t>(file.size()));
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, EmptyAndRank0TensorsAreFine) {  // known-bugs 49
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, Parse(MakeFile({{"none", "F32", {0}, ""},
                                                                       {"no_rows", "F32", {4, 0}, ""},
                                                                       {"scalar", "F32", {}, "1234"},
                                                                       {"last", "I64", {0, 7}, ""}})));
  EXPECT_EQ(header.tensors.size(), 4u);
  EXPECT_OK(Parse(RawFile("{}", "")));
}

TEST(SafetensorsHeader, OrderOfTheJsonDoesNotMatter) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, Parse(RawFile("{" + TensorJson("b", "U8", "[2]", "[1,3]") + "," +
                                                                         TensorJson("a", "U8", "[1]", "[0,1]") + "}  ",
                                                                     "xyz")));
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "b");
}

struct BadHeader {
  const char* title;
  std::string file;
  const char* tensor;  // that the error names
  const char* what;
};

// Without a printer gtest would show the bytes.
void PrintTo(const BadHeader& bad, std::ostream* out) {
  *out << bad.title;
}

std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets,
                const std::string& data) {
  return RawFile("{" + TensorJson("w", dtype, shape, offsets) + "}", data);
}

std::vector<BadHeader> BadHeaders() {
  const std::string good = MakeFile({{"v", "F32", {2}, "12345678"}, {"w", "F32", {2}, "12345678"}});
  const std::string a = TensorJson("v", "U8", "[4]", "[0,4]");
  return {
      // known-bugs 46
      {"OneByteShort", good.substr(0, good.size() - 1), "w", "cut short"},
      {"NineBytes", good.substr(0, 9), "", "cut short"},
      {"FourBytes", good.substr(0, 4), "", "has 4 bytes"},
      {"NoBytes", "", "", "has 0 bytes"},
      {"EightBytes", good.substr(0, 8), "", "cut short"},
      // known-bugs 47
      {"SixteenBytesMore", good + std::string(16, '\0'), "", "16 bytes after the last tensor"},
      // known-bugs 48
      {"LengthOf2To63", std::string("\0\0\0\0\0\0\0\x80", 8) + good.substr(8), "", "9223372036854775808"},
      {"LengthOverTheCap", RawFile(std::string(100'000'001, ' '), ""), "", "at most 100000000"},
      {"NoHeader", RawFile("", ""), "", "does not begin"},
      {"NotJson", RawFile("{\"w\"", ""), "", "not valid JSON"},
      {"LeadingSpace", RawFile(" {}", ""), "", "does not begin"},
      {"ByteOrderMark", RawFile("\xEF\xBB\xBF{}", ""), "", "does not begin"},
      {"List", RawFile("[]", ""), "", "does not begin"},
      {"TwoObjects", RawFile("{}{}", ""), "", "not valid JSON"},
      {"ZeroPadding", RawFile(std::string("{}\0\0", 4), ""), "", "not valid JSON"},
      {"BadUtf8", RawFile("{\"w\xff\":{}}", ""), "", "not valid JSON"},
      {"HalfASurrogate", RawFile(R"({"\ud800":{}})", ""), "", "not valid JSON"},
      {"DeepNesting", RawFile("{\"w\":" + std::string(100'000, '['), ""), "w", "a list"},
      {"TensorTwice", RawFile("{" + a + "," + a + "}", "1234"), "v", "there twice"},
      {"MetadataTwice", RawFile(R"({"__metadata__":{},"__metadata__":{}})", ""), "__metadata__", "there twice"},
      {"MetadataKeyTwice", RawFile(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "", "\"a\" twice"},
      {"MetadataNumber", RawFile(R"({"__metadata__":{"a":1}})", ""), "", "where a string belongs"},
      {"MetadataNested", RawFile(R"({"__metadata__":{"a":{}}})", ""), "", "where a string belongs"},
      {"MetadataText", RawFile(R"({"__metadata__":"a"})", ""), "__metadata__", "a string"},
      {"EntryNumber", RawFile(R"({"w":1})", ""), "w", "a number"},
      {"EntryNull", RawFile(R"({"w":null})", ""), "w", "null"},
      {"EntryEmpty", RawFile(R"({"w":{}})", ""), "w", "not all of"},
      {"FieldTwice", RawFile(R"({"w":{"dtype":"U8","dtype":"U8"}})", ""), "w", "twice"},
      {"FieldUnknown", RawFile(R"({"w":{"dtyp":"U8"}})", ""), "w", "unknown field"},
      // known-bugs 51
      {"DtypeUnknown", One("F99", "[4]", "[0,4]", "1234"), "w", "F99"},
      {"DtypeLowerCase", One("f32", "[1]", "[0,4]", "1234"), "w", "f32"},
      {"ShapeNegative", One("F32", "[-1]", "[0,4]", "1234"), "w", "-1"},
      {"ShapeFraction", One("F32", "[1.0]", "[0,4]", "1234"), "w", "1.0"},
      {"ShapeText", One("F32", "[\"1\"]", "[0,4]", "1234"), "w", "a string"},
      {"ShapeNumber", One("F32", "1", "[0,4]", "1234"), "w", "a number"},
      {"ShapeHuge", One("F32", "[18446744073709551615]", "[0,4]", "1234"), "w", "18446744073709551615"},
      {"ShapeOverflow", One("F32", "[4294967296,4294967296]", "[0,0]", ""), "w", "more than any file"},
      {"ShapeOverflowBySize", One("F64", "[2305843009213693952]", "[0,0]", ""), "w", "more than any file"},
      {"ShapeOverflowWithoutElements", One("F64", "[0,4294967296,4294967296]", "[0,0]", ""), "w", "more than any"},
      {"ShapeLies", One("F32", "[2]", "[0,4]", "1234"), "w", "needs 8"},
      {"ShapeLiesLess", One("F32", "[1]", "[0,8]", "12345678"), "w", "needs 4"},
      // known-bugs 49
      {"OneElementInNoBytes", One("F32", "[1]", "[0,0]", ""), "w", "needs 4"},
      {"OffsetsBackwards", One("U8", "[4]", "[4,0]", "1234"), "w", "ends before"},
      {"OffsetsNegative", One("U8", "[4]", "[-4,0]", "1234"), "w", "-4"},
      {"OffsetsOne", One("U8", "[4]", "[4]", "1234"), "w", "two numbers"},
      {"OffsetsThree", One("U8", "[4]", "[0,4,4]", "1234"), "w", "two numbers"},
      {"OffsetsPastTheEnd", One("U8", "[9]", "[0,9]", "1234"), "w", "cut short"},
      {"GapBefore", One("U8", "[3]", "[1,4]", "1234"), "w", "gap"},
      {"GapBetween", RawFile("{" + a + "," + TensorJson("w", "U8", "[1]", "[5,6]") + "}", "123456"), "w", "gap"},
      {"Overlap", RawFile("{" + a + "," + TensorJson("w", "U8", "[4]", "[2,6]") + "}", "123456"), "w", "overlaps"},
      {"SameBytes", RawFile("{" + a + "," + TensorJson("w", "U8", "[4]", "[0,4]") + "}", "1234"), "w", "overlaps"},
  };
}

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsRefusedByName) {
  const absl::Status status = Parse(GetParam().file).status();
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID,
                                AllOf(HasSubstr("f.safetensors"), HasSubstr(GetParam().what))));
  EXPECT_EQ(MetadataOf(status, "file"), "f.safetensors");
  EXPECT_EQ(MetadataOf(status, "tensor"), GetParam().tensor);
}

INSTANTIATE_TEST_SUITE_P(All, BadHeaderTest, ::testing::ValuesIn(BadHeaders()),
                         [](const auto& info) { return std::string(info.param.title); });

TEST(SafetensorsHeader, EveryTruncationIsRefused) {  // known-bugs 46
  const std::string good = MakeFile({{"v", "F32", {2}, "12345678"}, {"w", "F32", {2}, "12345678"}});
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(Parse(good.substr(0, size)), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID)) << size;
  }
}

TEST(SafetensorsHeader, AHeaderIsNotReadPastItsBytes) {
  const std::string good = MakeFile({{"w", "F32", {2}, "12345678"}});
  const auto size = static_cast<int64_t>(good.size());
  EXPECT_THAT(ParseSafetensorsHeader(absl::string_view(good).substr(0, 40), size, "f"),
              HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, HasSubstr("inside its header")));
}

TEST(MakeSafetensorsHeader, PutsDataOnAMultipleOf8WithoutGaps) {  // known-bugs 50
  for (size_t length = 1; length <= 16; ++length) {
    std::vector<TensorEntry> tensors = {{std::string(length, 'n'), v1::DTYPE_F64, {1}},
                                        {"\"quoted\"\n\xc3\xa9", v1::DTYPE_BF16, {3, 1}},
                                        {"scalar", v1::DTYPE_U8, {}},
                                        {"none", v1::DTYPE_F32, {0, 5}}};
    ASSERT_OK_AND_ASSIGN(const std::string bytes, MakeSafetensorsHeader({{"format", "pt"}}, absl::MakeSpan(tensors)));
    EXPECT_EQ(bytes.size() % 8, 0u);
    ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, Parse(bytes + std::string(15, 'x')));
    EXPECT_EQ(header.data_begin, static_cast<int64_t>(bytes.size()));
    EXPECT_THAT(header.metadata, ElementsAre(std::pair<const std::string, std::string>("format", "pt")));
    ASSERT_EQ(header.tensors.size(), 4u);
    for (const TensorEntry& read : header.tensors) {
      const auto written =
          std::find_if(tensors.begin(), tensors.end(), [&](const TensorEntry& t) { return t.name == read.name; });
      ASSERT_NE(written, tensors.end()) << read.name;
      EXPECT_EQ(written->begin, read.begin);
      EXPECT_EQ(written->end, read.end);
      EXPECT_EQ(written->shape, read.shape);
      EXPECT_EQ(written->dtype, read.dtype);
    }
  }
}

TEST(MakeSafetensorsHeader, RefusesWhatReadersWouldRefuse) {  // known-bugs 48
  std::vector<TensorEntry> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back({std::string(1'000'000, 'n') + std::to_string(i), v1::DTYPE_U8, {0}});
  EXPECT_THAT(MakeSafetensorsHeader({}, absl::MakeSpan(tensors)), HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED));
}

}  // namespace
}  // namespace espalier
