#include "worker/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"
#include "tests/unit/worker/checkpoint/model_files.h"
#include "worker/checkpoint/inspect.h"
#include "worker/checkpoint/load.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Bf16Weight;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::HasReason;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::MakeFile;
using testing::ReadFile;
using testing::TempDir;
using testing::WriteFile;
using testing::WriteSharded;

std::vector<std::string> NamesOf(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const v1::Parameter& p : checkpoint.description().parameters()) names.push_back(p.name());
  return names;
}

class CheckpointTest : public ::testing::Test {
 protected:
  absl::StatusOr<Checkpoint> Open(const std::string& path = "", const CheckpointOptions& options = {}) {
    return Checkpoint::Open(path.empty() ? dir_.path() : path, options);
  }
  auto Refuses(const std::string& file, const std::string& what) {
    return HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, AllOf(HasSubstr(file), HasSubstr(what)));
  }
  TempDir dir_;
};

TEST_F(CheckpointTest, OneFileByItselfOrInItsDirectory) {
  WriteFile(dir_ / "any.safetensors", MakeFile({Bf16Weight("b.weight", {4, 6}), Bf16Weight("a.weight", {2, 3}, 7)}));
  WriteFile(dir_ / "config.json", R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","x":[-Infinity,NaN]})");
  for (const std::string& path : {dir_.path(), dir_ / "any.safetensors"}) {
    ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open(path));
    EXPECT_THAT(NamesOf(checkpoint), ElementsAre("a.weight", "b.weight"));
    EXPECT_EQ(checkpoint.description().architecture(), "LlamaForCausalLM");
    EXPECT_EQ(checkpoint.description().model_type(), "llama");
    EXPECT_EQ(checkpoint.description().total_bytes(), 60);
    EXPECT_TRUE(checkpoint.description().parameters(0).prunable());
    std::string bytes(12, '\0');
    EXPECT_OK(checkpoint.ReadTensor(0, 0, absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size())));
    EXPECT_EQ(bytes, Bf16Weight("a.weight", {2, 3}, 7).bytes);
  }
}

TEST_F(CheckpointTest, SeveralFilesByTheirIndex) {
  WriteSharded(dir_.path(), {{Bf16Weight("c", {4})}, {Bf16Weight("a", {4}), Bf16Weight("b", {4})}});
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(NamesOf(checkpoint), ElementsAre("a", "b", "c"));
  EXPECT_EQ(checkpoint.pieces(2)[0].file, 0u);
  EXPECT_EQ(checkpoint.FindParameter("b"), 1);
  EXPECT_EQ(checkpoint.FindParameter("bb"), -1);
}

TEST_F(CheckpointTest, WhatIsNoModel) {
  EXPECT_THAT(Open(dir_ / "absent"), Refuses("absent", "does not exist"));
  EXPECT_THAT(Open(), Refuses(dir_.path(), "no .safetensors"));
  WriteFile(dir_ / "pytorch_model.bin", "x");
  EXPECT_THAT(Open(), Refuses(dir_.path(), "pytorch_model.bin"));
  EXPECT_THAT(Open(dir_ / "pytorch_model.bin"), Refuses("pytorch_model.bin", "neither"));
}

TEST_F(CheckpointTest, SeveralFilesWithoutAnIndex) {
  WriteFile(dir_ / "a.safetensors", MakeFile({Bf16Weight("a", {4})}));
  WriteFile(dir_ / "b.safetensors", MakeFile({Bf16Weight("b", {4})}));
  EXPECT_THAT(Open(), Refuses(dir_.path(), "a.safetensors, b.safetensors"));
}

TEST_F(CheckpointTest, AllMissingShardsAreNamed) {  // known-bugs 43, 44
  WriteSharded(dir_.path(), {{Bf16Weight("a", {4})}, {Bf16Weight("b", {4})}, {Bf16Weight("c", {4})}});
  fs::remove(dir_ / "part-1.safetensors");
  fs::remove(dir_ / "part-3.safetensors");
  EXPECT_THAT(Open(), Refuses("index.json", "2 of 3 files that are not there: part-1.safetensors, part-3.safetensors"));
}

TEST_F(CheckpointTest, StrayFilesAreNotedAndNeverLoaded) {  // known-bugs 45
  WriteSharded(dir_.path(), {{Bf16Weight("a", {4})}});
  WriteFile(dir_ / "stray.safetensors", "not even a header");
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(NamesOf(checkpoint), ElementsAre("a"));
  EXPECT_THAT(checkpoint.description().notes(), Contains(HasSubstr("stray.safetensors")));
  // This name other loaders take before the index.
  WriteFile(dir_ / "model.safetensors", MakeFile({Bf16Weight("a", {4})}));
  EXPECT_THAT(Open(), Refuses("model.safetensors", "remove one"));
}

TEST_F(CheckpointTest, IndexAndFilesMustAgree) {
  WriteSharded(dir_.path(), {{Bf16Weight("a", {4})}, {Bf16Weight("b", {4})}});
  const std::string index = dir_ / "model.safetensors.index.json";
  WriteFile(index, R"({"weight_map":{"a":"part-1.safetensors","b":"part-2.safetensors","c":"part-2.safetensors"}})");
  EXPECT_THAT(Open(), Refuses("part-2.safetensors", "\"c\""));
  WriteFile(index, R"({"weight_map":{"a":"part-2.safetensors","b":"part-1.safetensors"}})");
  EXPECT_THAT(Open(), Refuses("part-1.safetensors", "as being in part-2.safetensors"));
  WriteFile(dir_ / "part-2.safetensors", MakeFile({Bf16Weight("b", {4}), Bf16Weight("d", {4})}));
  WriteFile(index, R"({"weight_map":{"a":"part-1.safetensors","b":"part-2.safetensors"}})");
  EXPECT_THAT(Open(), Refuses("part-2.safetensors", "\"d\""));
  WriteFile(dir_ / "part-2.safetensors", MakeFile({Bf16Weight("b", {4}), Bf16Weight("a", {4})}));
  EXPECT_THAT(Open(), Refuses("part-2.safetensors", "also in part-1.safetensors"));
}

TEST_F(CheckpointTest, ATotalSizeThatIsWrongIsNoted) {
  WriteFile(dir_ / "x.safetensors", MakeFile({Bf16Weight("a", {4})}));
  WriteFile(dir_ / "model.safetensors.index.json",
            R"({"metadata":{"total_size":9},"weight_map":{"a":"x.safetensors"}})");
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(checkpoint.description().notes(), Contains(HasSubstr("total_size 9")));
}

TEST_F(CheckpointTest, WrapperTokensAreStripped) {  // known-bugs 28
  WriteFile(dir_ / "m.safetensors",
            MakeFile({Bf16Weight("module._orig_mod.model._fsdp_wrapped_module.l.weight", {4, 4}),
                      Bf16Weight("module.model.module.l.weight", {4, 4}),
                      Bf16Weight("module._forward_module.head._checkpoint_wrapped_module.weight", {4, 4})}));
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(NamesOf(checkpoint), ElementsAre("head.weight", "model.l.weight", "model.module.l.weight"));
}

TEST_F(CheckpointTest, TwoNamesThatBecomeOne) {  // known-bugs 28
  WriteFile(dir_ / "m.safetensors", MakeFile({Bf16Weight("a._orig_mod.w", {4}), Bf16Weight("a.w", {4})}));
  EXPECT_THAT(Open(), Refuses(dir_.path(), "a._orig_mod.w"));
}

TEST_F(CheckpointTest, TiedEmbeddingsAreOneParameterWithAnAlias) {
  WriteFile(dir_ / "m.safetensors", MakeFile({Bf16Weight("model.embed_tokens.weight", {8, 4})}));
  WriteFile(dir_ / "config.json", R"({"tie_word_embeddings":true})");
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(checkpoint.description().parameters(0).aliases(), ElementsAre("lm_head.weight"));
  WriteFile(dir_ / "m.safetensors",
            MakeFile({Bf16Weight("model.embed_tokens.weight", {8, 4}), Bf16Weight("lm_head.weight", {8, 4})}));
  ASSERT_OK_AND_ASSIGN(const Checkpoint both, Open());
  EXPECT_EQ(both.description().parameters_size(), 2);
  EXPECT_THAT(both.description().notes(), Contains(HasSubstr("lm_head.weight")));
}

TEST_F(CheckpointTest, ABrokenConfigIsRefused) {
  WriteFile(dir_ / "m.safetensors", MakeFile({Bf16Weight("a", {4})}));
  WriteFile(dir_ / "config.json", R"({"model_type":"llama",})");
  EXPECT_THAT(Open(), Refuses("config.json", "not valid JSON"));
}

TEST_F(CheckpointTest, AHubCacheOfLinksIsFollowedInsideTheRoots) {
  const std::string snapshot = dir_ / "hub/snapshots/abc";
  fs::create_directories(snapshot);
  WriteFile(dir_ / "hub/blobs/1", MakeFile({Bf16Weight("a", {4})}));
  WriteFile(dir_ / "elsewhere/1", MakeFile({Bf16Weight("a", {4})}));
  WriteFile(dir_ / "hub/blobs/2", "{}");
  fs::create_symlink("../../blobs/1", snapshot + "/model.safetensors");
  fs::create_symlink("../../blobs/2", snapshot + "/tokenizer.json");
  fs::create_symlink("../../blobs/3", snapshot + "/gone.json");
  const CheckpointOptions options = {.roots = *PathRoots::Create({dir_ / "hub"})};
  for (const std::string& path : {snapshot, snapshot + "/model.safetensors"}) {
    ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open(path, options));
    ASSERT_EQ(checkpoint.other_files().size(), 1u);
    EXPECT_THAT(checkpoint.other_files()[0]->name(), HasSubstr("tokenizer.json"));
    EXPECT_THAT(checkpoint.description().notes(), Contains(HasSubstr("gone.json")));
  }
  fs::remove(snapshot + "/model.safetensors");
  fs::create_symlink("../../../elsewhere/1", snapshot + "/model.safetensors");
  EXPECT_THAT(Open(snapshot, options), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED, HasSubstr("elsewhere")));
  EXPECT_THAT(Open(snapshot), IsOk());
}

TEST_F(CheckpointTest, APipeInTheirPlaceIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo((dir_ / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(Open(), Refuses("model.safetensors", "not a regular file"));
}

TEST_F(CheckpointTest, InspectAndLoadGiveTheSameVerdict) {  // known-bugs 46, 47
  const std::string good = MakeFile({Bf16Weight("a", {4, 4})});
  for (const std::string& bytes : {good.substr(0, good.size() - 1), good + std::string(16, '\0'), good.substr(0, 9)}) {
    WriteFile(dir_ / "model.safetensors", bytes);
    // Both begin with the one reader there is.
    EXPECT_THAT(Open(), Refuses("model.safetensors", std::to_string(bytes.size())));
  }
  // A file that shrinks between validation and reading.
  WriteFile(dir_ / "model.safetensors", good);
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  fs::resize_file(dir_ / "model.safetensors", good.size() - 1);
  EXPECT_THAT(LoadShards(checkpoint, 0, 1), Refuses("model.safetensors", "when it was opened"));
  EXPECT_THAT(InspectFiles(checkpoint), Refuses("model.safetensors", "when it was opened"));
}

TEST_F(CheckpointTest, OddTensorsLoadOnEveryWorldSize) {  // known-bugs 49, 51
  const std::vector<testing::RawTensor> tensors = {{"empty", "F32", {0}, ""},
                                                   {"hollow", "F16", {4, 0}, ""},
                                                   {"scalar", "F32", {}, "abcd"},
                                                   {"one", "BF16", {1, 3}, "abcdef"},
                                                   {"ids", "I64", {2}, std::string(16, 'i')},
                                                   {"fp8", "F8_E4M3", {5}, "\x01\x02\x80\x04\x05"}};
  WriteFile(dir_ / "model.safetensors", MakeFile(tensors));
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  for (const int world : {1, 2, 3, 7}) {
    std::map<std::string, std::string> joined;
    int64_t total = 0;
    for (int rank = 0; rank < world; ++rank) {
      ASSERT_OK_AND_ASSIGN(const ShardTable shards, LoadShards(checkpoint, rank, world));
      total += shards.total_bytes();
      for (const std::string& name : shards.names()) {
        const auto bytes = std::as_const(*shards.Lookup(name)->storage).bytes();
        joined[name] += std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    }
    EXPECT_EQ(total, checkpoint.description().total_bytes());
    for (const testing::RawTensor& t : tensors) EXPECT_EQ(joined[t.name], t.bytes) << t.name << " of " << world;
  }
  ASSERT_OK_AND_ASSIGN(const InspectResult report, InspectFiles(checkpoint));
  EXPECT_EQ(report.summary.total(), 0 + 0 + 1 + 3 + 2 + 5);
  EXPECT_EQ(report.summary.sparse(), 1);  // the 8-bit -0
}

TEST_F(CheckpointTest, ProgressEndsAtTheWhole) {
  WriteFile(dir_ / "model.safetensors", MakeFile({Bf16Weight("a", {40, 4})}));
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  std::vector<std::pair<int64_t, int64_t>> seen;
  const auto note = [&](int64_t done, int64_t total) { seen.emplace_back(done, total); };
  ASSERT_OK(LoadShards(checkpoint, 1, 4, note));
  EXPECT_EQ(seen.back(), std::pair(int64_t{80}, int64_t{80}));
  ASSERT_OK(InspectFiles(checkpoint, note));
  EXPECT_EQ(seen.back(), std::pair(int64_t{320}, int64_t{320}));
}

TEST(CheckMemory, RefusesWhatDoesNotFit) {
  EXPECT_OK(CheckMemory(1 << 20));
  EXPECT_THAT(CheckMemory(int64_t{1} << 60), HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED, HasSubstr("more workers")));
}

}  // namespace
}  // namespace espalier
