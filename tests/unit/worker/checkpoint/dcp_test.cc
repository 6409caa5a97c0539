#include "worker/checkpoint/dcp.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"
#include "tests/unit/worker/checkpoint/model_files.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/inspect.h"
#include "worker/checkpoint/load.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using testing::Bf16Weight;
using ::testing::Contains;
using testing::DcpFile;
using testing::DcpName;
using ::testing::ElementsAre;
using testing::HasReason;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::MakeFile;
using testing::PieceOf;
using testing::RawPiece;
using testing::RawTensor;
using testing::RowsOf;
using testing::TempDir;
using testing::WriteFile;

class DcpTest : public ::testing::Test {
 protected:
  // One file a rank.
  void Write(const std::vector<std::vector<RawPiece>>& ranks) {
    for (size_t r = 0; r < ranks.size(); ++r) WriteFile(dir_ / DcpName(static_cast<int>(r) + 1), DcpFile(ranks[r]));
  }
  absl::StatusOr<Checkpoint> Open(const std::string& path = "") {
    return Checkpoint::Open(path.empty() ? dir_.path() : path);
  }
  auto Refuses(const std::string& file, const std::string& what) {
    return HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, AllOf(HasSubstr(file), HasSubstr(what)));
  }
  // What every rank of several world sizes loads is the tensor's.
  void ExpectLoads(const Checkpoint& checkpoint, const RawTensor& tensor) {
    for (const int world : {1, 2, 3, 5}) {
      std::string joined;
      for (int rank = 0; rank < world; ++rank) {
        ASSERT_OK_AND_ASSIGN(const ShardTable shards, LoadShards(checkpoint, rank, world));
        ASSERT_OK_AND_ASSIGN(const Shard shard, shards.Lookup(tensor.name));
        EXPECT_EQ(std::vector<int64_t>(shard.parameter->shape().begin(), shard.parameter->shape().end()), tensor.shape);
        const auto bytes = std::as_const(*shard.storage).bytes();
        joined.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
      EXPECT_EQ(joined, tensor.bytes) << tensor.name << " on " << world;
    }
  }

  TempDir dir_;
  const RawTensor w_ = Bf16Weight("w", {7, 6});
};

TEST_F(DcpTest, RowsOfRanksAreOneTensor) {
  const RawTensor norm = Bf16Weight("norm", {5}, 2), scalar{"scalar", "F32", {}, "abcd"},
                  one = Bf16Weight("one", {1, 4});
  const RawTensor hollow{"hollow", "F32", {4, 0}, ""};
  Write({{RowsOf(w_, 0, 3), RowsOf(norm, 0, 2), PieceOf(scalar, {}, {}), RowsOf(one, 0, 1), RowsOf(hollow, 0, 2)},
         {RowsOf(w_, 3, 6), RowsOf(norm, 2, 4), RowsOf(one, 1, 1), RowsOf(hollow, 2, 4)},
         {RowsOf(w_, 6, 7), RowsOf(norm, 4, 5)}});
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_EQ(checkpoint.description().total_bytes(), 84 + 10 + 4 + 8);
  for (const RawTensor& tensor : {w_, norm, scalar, one, hollow}) ExpectLoads(checkpoint, tensor);
  EXPECT_EQ(checkpoint.format(), "pt");
  // No file says how many they are.
  EXPECT_THAT(checkpoint.description().notes(), ElementsAre(HasSubstr("3 are there")));
  ASSERT_OK_AND_ASSIGN(const InspectResult inspected, InspectFiles(checkpoint));
  EXPECT_EQ(inspected.rows.back().numel(), 42);
}

TEST_F(DcpTest, ColumnsAndBlocksAreOneTensor) {
  const RawTensor conv = Bf16Weight("conv", {4, 6, 3}, 5);
  Write({{PieceOf(w_, {0, 0}, {7, 2}), PieceOf(conv, {0, 0, 0}, {2, 3, 3})},
         {PieceOf(w_, {0, 2}, {4, 4}), PieceOf(conv, {0, 3, 0}, {2, 3, 3})},
         {PieceOf(w_, {4, 2}, {3, 4}), PieceOf(conv, {2, 0, 0}, {2, 6, 1})},
         {PieceOf(conv, {2, 0, 1}, {2, 6, 2})}});
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  ExpectLoads(checkpoint, w_);
  ExpectLoads(checkpoint, conv);
}

TEST_F(DcpTest, FilesMayBeInAFolderOfTheirOwnAndHaveParts) {
  std::filesystem::create_directory(dir_ / "sharded");
  const RawTensor b = Bf16Weight("b", {4}, 9);
  WriteFile(dir_ / ("sharded/" + DcpName(1, 1, 2)), DcpFile({RowsOf(w_, 0, 4)}));
  WriteFile(dir_ / ("sharded/" + DcpName(1, 2, 2)), DcpFile({RowsOf(b, 0, 2)}));
  WriteFile(dir_ / ("sharded/" + DcpName(2, 1, 2)), DcpFile({RowsOf(w_, 4, 7)}));
  WriteFile(dir_ / ("sharded/" + DcpName(2, 2, 2)), DcpFile({RowsOf(b, 2, 4)}));
  WriteFile(dir_ / "config.json", R"({"model_type":"llama"})");
  for (const std::string& path : {dir_.path(), dir_ / "sharded"}) {
    ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open(path));
    EXPECT_EQ(checkpoint.description().model_type(), path == dir_.path() ? "llama" : "");
    ExpectLoads(checkpoint, w_);
    ExpectLoads(checkpoint, b);
  }
  // Whole tensors beside it are the model.
  WriteFile(dir_ / "model.safetensors", MakeFile({Bf16Weight("whole", {2})}));
  ASSERT_OK_AND_ASSIGN(const Checkpoint joined, Open());
  EXPECT_EQ(joined.FindParameter("whole"), 0);
  EXPECT_EQ(joined.description().parameters_size(), 1);
}

TEST_F(DcpTest, APieceCanHaveAnotherKeyThanItsTensor) {
  RawPiece a = RowsOf(w_, 0, 2), b = RowsOf(w_, 2, 7);
  b.tensor.name = "w.1";
  WriteFile(dir_ / DcpName(1),
            DcpFile({a.tensor, b.tensor},
                    R"({"w":{"saved_offsets":[0,0]},"w.1":{"saved_offsets":[2,0],"logical_fqn":"w"}})"));
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_EQ(checkpoint.description().parameters_size(), 1);
  ExpectLoads(checkpoint, w_);
}

TEST_F(DcpTest, CopiesMustBeTheSame) {
  const RawTensor scalar{"scalar", "F32", {}, "abcd"};
  Write({{RowsOf(w_, 0, 7), PieceOf(scalar, {}, {})}, {RowsOf(w_, 0, 7), PieceOf(scalar, {}, {})}});
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  ExpectLoads(checkpoint, w_);
  ExpectLoads(checkpoint, scalar);
  Write({{RowsOf(w_, 0, 7)}, {RowsOf(Bf16Weight("w", {7, 6}, 8), 0, 7)}});
  EXPECT_THAT(Open(), Refuses("shard-00002", "not the same there"));
}

TEST_F(DcpTest, ATensorInTooManyPiecesIsRefused) {
  const RawTensor long_one = Bf16Weight("w", {(1 << 14) + 1, 1});
  std::vector<RawTensor> pieces;
  std::string info;
  for (int64_t i = 0; i < long_one.shape[0]; ++i) {
    pieces.push_back(RowsOf(long_one, i, i + 1).tensor);
    pieces.back().name = absl::StrCat("w.", i);
    absl::StrAppend(&info, i == 0 ? "{" : ",", "\"w.", i, R"(":{"saved_offsets":[)", i, R"(,0],"logical_fqn":"w"})");
  }
  WriteFile(dir_ / DcpName(1), DcpFile(pieces, info + "}"));
  EXPECT_THAT(Open(), HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED, HasSubstr("more than 16384 pieces")));
}

TEST_F(DcpTest, PiecesThatMakeNoTensorAreRefused) {
  Write({{RowsOf(w_, 0, 3)}, {RowsOf(w_, 4, 7)}});
  EXPECT_THAT(Open(), Refuses("\"w\"", "rows 3 to 3 are in no file"));
  Write({{RowsOf(w_, 0, 4)}, {RowsOf(w_, 3, 7)}});
  EXPECT_THAT(Open(), Refuses("shard-00002", "overlaps the piece [4, 6] at [0, 0]"));
  Write({{PieceOf(w_, {0, 0}, {7, 2})}, {PieceOf(w_, {0, 2}, {6, 4})}});
  EXPECT_THAT(Open(), Refuses("\"w\"", "38 of its 42 elements"));
  // A piece of nothing that lies about where it is.
  Write({{RowsOf(w_, 0, 7)}, {{{"w", "BF16", {0, 6}, ""}, {1000, 0}}}});
  EXPECT_THAT(Open(), Refuses("\"w\"", "42 of its 6000 elements"));
  Write({{RowsOf(w_, 0, 3)}, {{{"w", "F16", {4, 6}, std::string(48, 'x')}, {3, 0}}}});
  EXPECT_THAT(Open(), Refuses("shard-00002", "F16"));
  Write({{RowsOf(w_, 0, 3)}, {{{"w", "BF16", {24}, std::string(48, 'x')}, {3}}}});
  EXPECT_THAT(Open(), Refuses("shard-00002", "1 dimensions here"));
  // Products that overflow.
  Write({{{{"w", "BF16", {0, 1}, ""}, {1LL << 40, 1LL << 40}}}, {RowsOf(w_, 0, 7)}});
  EXPECT_THAT(Open(), Refuses("\"w\"", "more than its files hold"));
}

TEST_F(DcpTest, MissingFilesAreNamed) {
  Write({{RowsOf(w_, 0, 3)}, {RowsOf(w_, 3, 5)}, {RowsOf(w_, 5, 7)}});
  std::filesystem::remove(dir_ / DcpName(2));
  EXPECT_THAT(Open(), Refuses("rows 3 to 4", DcpName(2)));
  // Of a rank that owns nothing there is no file; nobody can tell, and it is said.
  Write({{RowsOf(w_, 0, 3)}, {}, {RowsOf(w_, 3, 7)}});
  std::filesystem::remove(dir_ / DcpName(2));
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(checkpoint.description().notes(), Contains(HasSubstr(DcpName(2))));
  for (const int shard : {1, 3}) std::filesystem::remove(dir_ / DcpName(shard));
  WriteFile(dir_ / DcpName(1, 2, 2), DcpFile({RowsOf(w_, 0, 3)}));
  EXPECT_THAT(Open(), Refuses(dir_.path(), "part 1 of 2"));
  WriteFile(dir_ / DcpName(1, 1, 3), DcpFile({RowsOf(w_, 3, 7)}));
  EXPECT_THAT(Open(), Refuses("-model-0000", "not of one save"));
}

// Without its last file the rest looks like a smaller model.
TEST_F(DcpTest, TheVocabularyTellsThatTheLastFileIsMissing) {
  const RawTensor embedding = Bf16Weight("model.embed_tokens.weight", {8, 4});
  Write({{RowsOf(embedding, 0, 4)}, {RowsOf(embedding, 4, 8)}});
  for (const char* config : {R"({"vocab_size":8})", R"({"text_config":{"vocab_size":7}})"}) {
    WriteFile(dir_ / "config.json", config);
    ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
    EXPECT_THAT(checkpoint.description().notes(), IsEmpty());
  }
  std::filesystem::remove(dir_ / DcpName(2));
  EXPECT_THAT(Open(), Refuses("embed_tokens", "4 rows"));
}

TEST_F(DcpTest, FilesThatSayTheirNumberAreComplete) {
  const auto write = [&](int shard, const RawPiece& piece, const std::string& number) {
    WriteFile(dir_ / DcpName(shard),
              DcpFile({piece.tensor}, absl::StrCat(R"({"w":{"saved_offsets":[)", piece.origin[0], ",0]}}"),
                      absl::StrCat(R"("espalier.weight_files":")", number, "\"")));
  };
  write(1, RowsOf(w_, 0, 4), "2");
  EXPECT_THAT(Open(), Refuses("has 1 weight files", "shard-00001-model-00001-of-00001.safetensors is one of 2"));
  write(2, RowsOf(w_, 4, 7), "2");
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(checkpoint.description().notes(), IsEmpty());
  ExpectLoads(checkpoint, w_);
  write(2, RowsOf(w_, 4, 7), "two");
  EXPECT_THAT(Open(), Refuses("shard-00002", "one of two"));
  WriteFile(dir_ / DcpName(2), DcpFile({RowsOf(w_, 4, 7)}));
  EXPECT_THAT(Open(), Refuses(dir_.path(), "not of one save"));
}

TEST_F(DcpTest, OnlyWholeTensorsStandAlone) {
  // What the writer makes when one rank saves everything.
  WriteFile(dir_ / "model-00001-of-00001.safetensors", DcpFile({RowsOf(w_, 0, 7)}));
  EXPECT_THAT(Open(dir_ / "model-00001-of-00001.safetensors"), IsOk());
  WriteFile(dir_ / "model.safetensors.index.json", R"({"weight_map":{"w":"model-00001-of-00001.safetensors"}})");
  EXPECT_THAT(Open(), IsOk());
  WriteFile(dir_ / "model-00001-of-00001.safetensors", DcpFile({RowsOf(w_, 1, 7)}));
  EXPECT_THAT(Open(), Refuses("\"w\"", "as if it were whole"));
  EXPECT_THAT(Open(dir_ / "model-00001-of-00001.safetensors"), Refuses("\"w\"", "give the directory"));
  TempDir other;
  WriteFile(other / DcpName(1), DcpFile({RowsOf(w_, 0, 7)}));
  EXPECT_THAT(Open(other / DcpName(1)), Refuses(DcpName(1), "give the directory"));
  EXPECT_THAT(Open(other.path()), IsOk());
  WriteFile(other / "x.safetensors", MakeFile({Bf16Weight("x", {2})}));
  EXPECT_THAT(Open(other.path()), Refuses("x.safetensors", "has no DCP_SHARDING_INFO"));
}

TEST_F(DcpTest, BadMetadataIsRefusedByName) {
  const RawTensor piece = RowsOf(w_, 0, 7).tensor;
  struct Case {
    const char* info;
    const char* what;
  };
  const std::string deep = absl::StrCat(R"({"w":)", std::string(5000, '['));
  for (const Case& c : {
           Case{"", "not valid JSON"},
           {"[]", "not an object"},
           {"{}", "is not in DCP_SHARDING_INFO"},
           {R"({"w":1})", "is not an object"},
           {R"({"w":{}})", "has no list \"saved_offsets\""},
           {R"({"w":{"saved_offsets":3}})", "has no list"},
           {R"({"w":{"saved_offsets":[0]}})", "has 1 saved_offsets; the piece has 2"},
           {R"({"w":{"saved_offsets":[0,0,0]}})", "has 3 saved_offsets"},
           {R"({"w":{"saved_offsets":[-1,0]}})", "not whole numbers"},
           {R"({"w":{"saved_offsets":[0.0,0]}})", "not whole numbers"},
           {R"({"w":{"saved_offsets":["0",0]}})", "not whole numbers"},
           {R"({"w":{"saved_offsets":[null,0]}})", "not whole numbers"},
           {R"({"w":{"saved_offsets":[9223372036854775807,0]}})", "more than any tensor"},
           {R"({"w":{"saved_offsets":[18446744073709551615,0]}})", "more than any tensor"},
           {R"({"w":{"saved_offsets":[99999999999999999999,0]}})", "not whole numbers"},
           {R"({"w":{"saved_offsets":[0,0],"logical_fqn":1}})", "logical_fqn"},
           {R"({"w":{"saved_offsets":[0,0]},"w":{"saved_offsets":[0,0]}})", "twice"},
           {R"({"w":{"saved_offsets":[0,0]},"v":{"saved_offsets":[0,0]}})", "2 entries, the file 1 tensors"},
           {deep.c_str(), "nested"},
       }) {
    WriteFile(dir_ / DcpName(1), DcpFile({piece}, c.info));
    EXPECT_THAT(Open(), Refuses(DcpName(1), c.what)) << c.info;
  }
  WriteFile(dir_ / DcpName(1), DcpFile({piece}, R"({"w":{"saved_offsets":[0,0]}})", R"("DCP_VERSION":"2.0")"));
  EXPECT_THAT(Open(), Refuses(DcpName(1), "\"2.0\""));
  WriteFile(dir_ / DcpName(1), DcpFile({piece}, R"({"w":{"saved_offsets":[0,0]}})", R"("format":"np")"));
  EXPECT_THAT(Open(), IsOk());
}

TEST(DcpFileName, IsReadAsItIsWritten) {
  EXPECT_EQ(MakeDcpFileName({12, 3, 4}), "shard-00012-model-00003-of-00004.safetensors");
  const auto name = ParseDcpFileName("shard-123456-model-00003-of-00004.safetensors");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->shard, 123456);
  EXPECT_EQ(name->part, 3);
  EXPECT_EQ(name->parts, 4);
  for (const char* bad : {"shard-1-model-00001-of-00001.safetensors", "shard-00001-model-00002-of-00001.safetensors",
                          "shard-00000-model-00001-of-00001.safetensors", "shard-00001-model-00001-of-00001.bin",
                          "shard-99999999999-model-00001-of-00001.safetensors", "model-00001-of-00001.safetensors"}) {
    EXPECT_FALSE(ParseDcpFileName(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace espalier
