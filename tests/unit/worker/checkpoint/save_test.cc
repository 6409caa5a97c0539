#include "worker/checkpoint/save.h"

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/crc32.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"
#include "tests/support/thread_collective.h"
#include "tests/unit/worker/checkpoint/model_files.h"
#include "worker/checkpoint/inspect.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/verify.h"
#include "worker/mask/digest.h"
#include "worker/mask/kernels.h"
#include "worker/report/report.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Bf16Weight;
using ::testing::ElementsAre;
using testing::HasReason;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using testing::MakeFile;
using ::testing::Not;
using ::testing::Pair;
using testing::ReadFile;
using testing::TempDir;
using testing::ThreadGroup;
using testing::WriteFile;

// Every regular file below a directory with its bytes; the provenance line of the manifest taken out.
std::map<std::string, std::string> Tree(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::string bytes = ReadFile(entry.path().string());
    if (entry.path().filename() == "espalier.json") {
      const size_t begin = bytes.find("\"provenance\"");
      bytes.erase(begin, bytes.find('\n', begin) - begin);
    }
    out[fs::relative(entry.path(), directory).string()] = bytes;
  }
  return out;
}

// Prunes elements whose flat index is 1 modulo 3 of every 2-D parameter: whatever the world size.
MaskTable PruneSome(const ShardTable& shards) {
  MaskTable masks;
  for (const std::string& name : shards.names()) {
    const Shard shard = *shards.Lookup(name);
    if (shard.parameter->shape_size() != 2 || !IsPrunableDtype(shard.parameter->dtype())) continue;
    Bitmask mask(shard.range.size());
    for (int64_t i = 0; i < mask.size(); ++i) mask.Set(i, (shard.range.begin + i) % 3 != 1);
    ApplyMask(shard.parameter->dtype(), shard.storage->bytes(), mask);
    masks[name] = {.bits = std::make_shared<const Bitmask>(std::move(mask)), .version = 1, .planned = 0};
  }
  return masks;
}

// Ranks as threads: load, prune, save, publish.
class SaveTest : public ::testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<CheckpointSaver> saver;
    std::optional<ShardTable> shards;
    MaskTable masks;
    absl::StatusOr<v1::SaveShardsResult> saved = absl::UnknownError("not run");
  };

  void SetUp() override {
    testing::WriteSharded(model_, {{Bf16Weight("l1.weight", {5, 9}, 3),
                                    Bf16Weight("l2.weight", {1, 8}, 4),
                                    {"norm.weight", "F32", {6}, std::string(24, 'n')}},
                                   {{"ids", "I64", {3}, std::string(24, 'i')},
                                    {"scalar", "BF16", {}, "sc"},
                                    {"hollow", "F32", {4, 0}, ""},
                                    {"fp8.weight", "F8_E4M3", {3, 3}, "123456789"},
                                    {"l3.weight", "F32", {7, 4}, std::string(112, 'x')}}});
    WriteFile(model_ + "/config.json", R"({"model_type":"llama"})");
    WriteFile(model_ + "/blob", "tokens");
    fs::create_symlink("blob", model_ + "/tokenizer.json");
    for (const char* left :
         {"pytorch_model.bin", "old.pt", "old.pth", "x.gguf", "pytorch_model.bin.index.json", ".hidden"}) {
      WriteFile(model_ + "/" + left, "weights");
    }
    WriteFile(model_ + "/stray.safetensors", "weights");
  }

  SaveRequest Request() {
    SaveRequest request;
    request.path = output_;
    request.token = "runs/r-1-1";
    request.max_shard_bytes = max_shard_bytes_;
    return request;
  }

  // `edit` may change what one rank asks for or holds.
  void Save(
      int world, const std::function<void(int, SaveRequest&, Rank&)>& edit = [](int, SaveRequest&, Rank&) {}) {
    const Checkpoint source = *Checkpoint::Open(model_);
    ranks_.clear();
    ranks_.resize(static_cast<size_t>(world));
    ThreadGroup group(world);
    group.Run([&](Collective& collective) {
      Rank& rank = ranks_[static_cast<size_t>(collective.rank())];
      rank.saver = std::make_unique<CheckpointSaver>(PathRoots(), clock_);
      rank.shards = *LoadShards(source, collective.rank(), world);
      rank.masks = PruneSome(*rank.shards);
      SaveRequest request = Request();
      edit(collective.rank(), request, rank);
      rank.saved = rank.saver->SaveShards(request, source, *rank.shards, rank.masks, collective);
    });
  }

  v1::PublishCheckpoint PublishRequest() {
    v1::PublishCheckpoint publish;
    publish.set_path(output_);
    publish.set_token("runs/r-1-1");
    publish.set_recipe("stage:\n  caf\xc3\xa9: \"1\"\n");
    publish.set_recipe_name("half");
    v1::RecipeText& then = *publish.mutable_plan()->add_then();
    then.set_recipe("then_stage: {}\n");
    publish.mutable_plan()->set_recipe_crc32(Crc32OfTexts({publish.recipe(), then.recipe()}));
    publish.mutable_plan()->set_pruned_elements(3);
    uint64_t digest = 0;
    std::map<std::string, v1::ParameterSparsity> rows;
    for (const Rank& rank : ranks_) {
      for (const v1::RangeChecksum& c : rank.saved->checksums()) *publish.add_checksums() = c;
      for (const std::string& name : rank.shards->names()) {
        const Shard shard = *rank.shards->Lookup(name);
        v1::ParameterSparsity& row = rows[name];
        row.set_name(name);
        row.set_dtype(shard.parameter->dtype());
        *row.mutable_shape() = shard.parameter->shape();
        row.set_numel(NumElements(shard.parameter->shape()));
        row.set_prunable(shard.parameter->prunable());
        row.set_planned(-1);
        row.set_zeros(row.zeros() + CountZeros(shard.parameter->dtype(), std::as_const(*shard.storage).bytes()));
        const auto mask = rank.masks.find(name);
        if (mask == rank.masks.end()) continue;
        row.set_masked(row.masked() + mask->second.bits->CountPruned());
        row.mutable_structure();  // unstructured
        row.set_mask_version(1);
        digest = AddDigests(digest, MaskDigest(name, *mask->second.bits, shard.range));
      }
    }
    std::vector<v1::ParameterSparsity> list;
    for (const auto& [name, row] : rows) {
      *publish.add_report() = row;
      list.push_back(row);
    }
    *publish.mutable_summary() = Summarize(list, 1);
    publish.set_mask_digest(digest);
    publish.mutable_provenance()->set_world_size(static_cast<int>(ranks_.size()));
    return publish;
  }

  absl::StatusOr<v1::PublishCheckpointResult> Publish(const v1::PublishCheckpoint& request,
                                                      absl::Duration deadline = absl::InfiniteDuration()) {
    return ranks_[0].saver->Publish(request, deadline);
  }

  // The names in the folder of the output.
  std::vector<std::string> Left() {
    std::vector<std::string> out;
    if (!fs::exists(outputs_)) return out;
    for (const auto& entry : fs::directory_iterator(outputs_)) out.push_back(entry.path().filename().string());
    return out;
  }

  void ExpectEveryRankFails(v1::ErrorReason reason, const std::string& message) {
    for (const Rank& rank : ranks_) EXPECT_THAT(rank.saved, HasReason(reason, HasSubstr(message)));
    ranks_.clear();
    EXPECT_THAT(Left(), IsEmpty());
  }

  TempDir dir_;
  testing::FakeClock clock_;
  const std::string model_ = dir_ / "model";
  const std::string outputs_ = dir_ / "outputs";
  std::string output_ = outputs_ + "/out";
  int64_t max_shard_bytes_ = 0;
  std::vector<Rank> ranks_;
};

TEST_F(SaveTest, EveryWorldSizeWritesTheSameBytes) {  // known-bugs 31, 32
  for (const int64_t limit : {int64_t{0}, int64_t{60}}) {
    max_shard_bytes_ = limit;
    std::map<std::string, std::string> first;
    for (const int world : {1, 2, 3, 4, 8}) {
      Save(world);
      for (const Rank& rank : ranks_) ASSERT_OK(rank.saved);
      ASSERT_OK(Publish(PublishRequest()));
      EXPECT_THAT(Left(), ElementsAre("out"));
      const auto tree = Tree(output_);
      if (world == 1) first = tree;
      EXPECT_EQ(tree, first) << world;
      ASSERT_OK_AND_ASSIGN(const VerifyResult verified, VerifyDirectory(output_));
      EXPECT_THAT(verified.differences, IsEmpty());
      EXPECT_EQ(verified.parameters, 8);
      fs::remove_all(output_);
    }
    EXPECT_EQ(first.count("model.safetensors.index.json"), limit == 0 ? 0u : 1u);
  }
}

// The files that PyTorch's DCP reads: the same model, the same masks, and the same bytes again from the same ranks.
TEST_F(SaveTest, ForDcpEveryRankWritesItsRows) {
  const auto ask = [](int, SaveRequest& request, Rank&) { request.format = v1::CHECKPOINT_FORMAT_DCP; };
  Save(2);
  ASSERT_OK(Publish(PublishRequest()));
  const std::string whole = output_;
  const std::string masks = Tree(whole).at("espalier/masks.safetensors");
  output_ = outputs_ + "/dcp";
  for (const int64_t limit : {int64_t{0}, int64_t{60}}) {
    max_shard_bytes_ = limit;
    for (const int world : {1, 2, 3, 8}) {
      Save(world, ask);
      for (const Rank& rank : ranks_) ASSERT_OK(rank.saved);
      ASSERT_OK(Publish(PublishRequest()));
      const auto tree = Tree(output_);
      EXPECT_EQ(tree.at("espalier/masks.safetensors"), masks);
      EXPECT_EQ(tree.count("model.safetensors.index.json"), 0u);
      // Of 8 ranks the last owns nothing.
      if (limit == 0) {
        EXPECT_EQ(tree.count(testing::DcpName(std::min(world, 7))), 1u) << world;
        EXPECT_EQ(tree.count(testing::DcpName(8)), 0u);
      }
      ASSERT_OK_AND_ASSIGN(const VerifyResult verified, VerifyDirectory(output_));
      EXPECT_THAT(verified.differences, IsEmpty());
      EXPECT_EQ(verified.parameters, 8);
      ASSERT_OK_AND_ASSIGN(const Checkpoint read, Checkpoint::Open(output_));
      EXPECT_THAT(read.description().notes(), IsEmpty());
      const ShardTable now = *LoadShards(read, 0, 1);
      const ShardTable expected = *LoadShards(*Checkpoint::Open(whole), 0, 1);
      ASSERT_EQ(now.names(), expected.names());
      for (const std::string& name : now.names()) {
        EXPECT_EQ(now.Lookup(name)->parameter->SerializeAsString(),
                  expected.Lookup(name)->parameter->SerializeAsString());
        EXPECT_EQ(std::as_const(*now.Lookup(name)->storage).bytes(),
                  std::as_const(*expected.Lookup(name)->storage).bytes());
      }
      fs::remove_all(output_);
      Save(world, ask);
      ASSERT_OK(Publish(PublishRequest()));
      EXPECT_EQ(Tree(output_), tree) << "not the same bytes again";
      fs::remove_all(output_);
    }
  }
}

TEST_F(SaveTest, OfDcpsFilesAMissingOneIsFound) {
  Save(3, [](int, SaveRequest& request, Rank&) { request.format = v1::CHECKPOINT_FORMAT_DCP; });
  ASSERT_OK(Publish(PublishRequest()));
  fs::remove(output_ + "/" + testing::DcpName(3));
  EXPECT_THAT(Checkpoint::Open(output_), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, HasSubstr("one of 3")));
  ASSERT_OK_AND_ASSIGN(const VerifyResult verified, VerifyDirectory(output_));
  EXPECT_GE(verified.differences.size(), 2u);
}

TEST_F(SaveTest, TensorsKeepTheirDtypesAndBytes) {  // known-bugs 32, 49, 51
  Save(3);
  ASSERT_OK(Publish(PublishRequest()));
  const Checkpoint source = *Checkpoint::Open(model_);
  ASSERT_OK_AND_ASSIGN(const Checkpoint written, Checkpoint::Open(output_));
  ASSERT_EQ(written.description().parameters_size(), source.description().parameters_size());
  const ShardTable before = *LoadShards(source, 0, 1);
  const ShardTable after = *LoadShards(written, 0, 1);
  for (int i = 0; i < source.description().parameters_size(); ++i) {
    const v1::Parameter& old = source.description().parameters(i);
    const v1::Parameter& now = written.description().parameters(i);
    EXPECT_EQ(now.name(), old.name());
    EXPECT_EQ(now.dtype(), old.dtype());
    EXPECT_EQ(now.has_stored_mask(), old.shape_size() == 2 && IsPrunableDtype(old.dtype()));
    const auto a = std::as_const(*before.Lookup(old.name())->storage).bytes();
    const auto b = std::as_const(*after.Lookup(old.name())->storage).bytes();
    const int64_t size = DtypeSize(old.dtype());
    for (size_t k = 0; k < a.size(); ++k) {
      const bool pruned = now.has_stored_mask() && static_cast<int64_t>(k) / size % 3 == 1;
      ASSERT_EQ(b[k], pruned ? std::byte{0} : a[k]) << old.name() << " at byte " << k;
    }
  }
}

TEST_F(SaveTest, OtherFilesAreCopiedAndWeightsAreNot) {  // known-bugs 44
  Save(2);
  ASSERT_OK(Publish(PublishRequest()));
  const auto tree = Tree(output_);
  EXPECT_THAT(
      tree, ElementsAre(Key("blob"), Pair("config.json", R"({"model_type":"llama"})"), Key("espalier/espalier.json"),
                        Key("espalier/masks.safetensors"), Key("model.safetensors"), Pair("tokenizer.json", "tokens")));
  EXPECT_FALSE(fs::is_symlink(output_ + "/tokenizer.json"));
}

TEST_F(SaveTest, TheMasksAreReadBackByAnotherWorldSize) {  // known-bugs 31
  Save(2);
  ASSERT_OK(Publish(PublishRequest()));
  const uint64_t digest = PublishRequest().mask_digest();
  ASSERT_OK_AND_ASSIGN(const Checkpoint written, Checkpoint::Open(output_));
  uint64_t sum = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const ShardTable shards = *LoadShards(written, rank, 3);
    ASSERT_OK_AND_ASSIGN(const MaskTable masks, LoadStoredMasks(written, shards));
    EXPECT_THAT(masks, ElementsAre(Key("hollow"), Key("l1.weight"), Key("l2.weight"), Key("l3.weight")));
    for (const auto& [name, mask] : masks) {
      EXPECT_EQ(mask.version, 0);
      sum = AddDigests(sum, MaskDigest(name, *mask.bits, shards.Lookup(name)->range));
    }
  }
  EXPECT_EQ(sum, digest);
  // What is inspected says the same as what was reported.
  ASSERT_OK_AND_ASSIGN(const InspectResult inspected, InspectFiles(written));
  const v1::PublishCheckpoint published = PublishRequest();
  for (int i = 0; i < published.report_size(); ++i) {
    EXPECT_EQ(inspected.rows[static_cast<size_t>(i)].SerializeAsString(), published.report(i).SerializeAsString());
  }
  EXPECT_EQ(inspected.summary.SerializeAsString(), published.summary().SerializeAsString());
  // Ignored on demand.
  ASSERT_OK_AND_ASSIGN(const Checkpoint ignored, Checkpoint::Open(output_, {.ignore_stored_masks = true}));
  EXPECT_THAT(*LoadStoredMasks(ignored, *LoadShards(ignored, 0, 1)), IsEmpty());
}

TEST_F(SaveTest, AMaskOverAWeightIsRefusedWhenItIsLoaded) {
  Save(1);
  ASSERT_OK(Publish(PublishRequest()));
  std::string bytes = ReadFile(output_ + "/model.safetensors");
  const Checkpoint written = *Checkpoint::Open(output_);
  const size_t at =
      static_cast<size_t>(written.pieces(static_cast<size_t>(written.FindParameter("l3.weight")))[0].offset);
  bytes[at + 4] = 'y';  // element 1 is pruned
  WriteFile(output_ + "/model.safetensors", bytes);
  const Checkpoint changed = *Checkpoint::Open(output_);
  EXPECT_THAT(LoadStoredMasks(changed, *LoadShards(changed, 0, 2)),
              HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID,
                        AllOf(HasSubstr("l3.weight"), HasSubstr("--ignore-stored-masks"))));
  EXPECT_OK(LoadStoredMasks(changed, *LoadShards(changed, 1, 2)));
  ASSERT_OK_AND_ASSIGN(const VerifyResult verified, VerifyDirectory(output_));
  ASSERT_THAT(verified.differences, Not(IsEmpty()));
  for (const Difference& d : verified.differences) EXPECT_EQ(d.file, "model.safetensors") << d.what;
}

TEST_F(SaveTest, WhereTheDirectoryIsNotSharedRank0Writes) {  // known-bugs 33
  Save(3);
  ASSERT_OK(Publish(PublishRequest()));
  const auto shared = Tree(output_);
  fs::remove_all(output_);
  Save(3, [&](int rank, SaveRequest& request, Rank&) {
    if (rank > 0) request.path = dir_ / "other-mount-" + std::to_string(rank) + "/out";
  });
  for (const Rank& rank : ranks_) ASSERT_OK(rank.saved);
  ASSERT_OK(Publish(PublishRequest()));
  EXPECT_EQ(Tree(output_), shared);
  EXPECT_FALSE(fs::exists(dir_ / "other-mount-1"));
}

TEST_F(SaveTest, ADenseTensorUnderItsMaskIsFoundInTheFiles) {
  for (const bool elsewhere : {false, true}) {
    const auto revive = [&](int rank, SaveRequest& request, Rank& r) {
      if (elsewhere && rank > 0) request.path = dir_ / "other-mount/out";
      if (rank != 1) return;
      const Shard shard = *r.shards->Lookup("l1.weight");
      for (std::byte& b : shard.storage->bytes()) b = std::byte{1};
    };
    Save(2, revive);
    ExpectEveryRankFails(v1::ERROR_REASON_MASK_NOT_EFFECTIVE, "l1.weight");
    // With the check off it is what is saved.
    Save(2, [&](int rank, SaveRequest& request, Rank& r) {
      revive(rank, request, r);
      request.recount = false;
    });
    for (const Rank& rank : ranks_) EXPECT_OK(rank.saved);
    ranks_.clear();
    EXPECT_THAT(Left(), IsEmpty());
  }
}

TEST_F(SaveTest, AnExistingOutputIsRefusedByAllRanksAlike) {  // known-bugs 33
  WriteFile(output_ + "/model-00007-of-00007.safetensors", "old");
  // Rank 1 does not see it; rank 0 decides.
  Save(2, [&](int rank, SaveRequest& request, Rank&) {
    if (rank == 1) request.path = dir_ / "other-mount/out";
  });
  for (const Rank& rank : ranks_) {
    EXPECT_THAT(rank.saved, HasReason(v1::ERROR_REASON_OUTPUT_EXISTS, HasSubstr(output_)));
  }
  EXPECT_THAT(Left(), ElementsAre("out"));
  EXPECT_THAT(Tree(output_), ElementsAre(Pair("model-00007-of-00007.safetensors", "old")));
}

TEST_F(SaveTest, OverwritingLeavesNothingOfTheOldOne) {  // known-bugs 44
  WriteFile(output_ + "/model-00007-of-00007.safetensors", "old");
  WriteFile(output_ + "/model.safetensors.index.json", "old");
  Save(2, [](int, SaveRequest& request, Rank&) { request.overwrite = true; });
  EXPECT_EQ(ReadFile(output_ + "/model.safetensors.index.json"), "old");  // until it is published
  v1::PublishCheckpoint request = PublishRequest();
  request.set_overwrite(true);
  ASSERT_OK(Publish(request));
  EXPECT_THAT(Left(), ElementsAre("out"));
  EXPECT_THAT(Tree(output_),
              Not(::testing::Contains(Key(AnyOf("model.safetensors.index.json", "model-00007-of-00007.safetensors")))));
  EXPECT_THAT(VerifyDirectory(output_)->differences, IsEmpty());
}

TEST_F(SaveTest, NeverOverTheModelItself) {
  output_ = model_;
  Save(2, [](int, SaveRequest& request, Rank&) { request.overwrite = true; });
  for (const Rank& rank : ranks_) {
    EXPECT_THAT(rank.saved, HasReason(v1::ERROR_REASON_OUTPUT_EXISTS, HasSubstr("holds the model")));
  }
  EXPECT_TRUE(fs::exists(model_ + "/model.safetensors.index.json"));
}

TEST_F(SaveTest, AnOutputThatAppearsMeanwhileIsKept) {
  Save(2);
  WriteFile(output_ + "/precious", "x");
  EXPECT_THAT(Publish(PublishRequest()), HasReason(v1::ERROR_REASON_OUTPUT_EXISTS));
  EXPECT_THAT(Left(), ElementsAre("out"));
  EXPECT_EQ(ReadFile(output_ + "/precious"), "x");
}

TEST_F(SaveTest, NothingIsPublishedTwiceOrAfterADiscard) {
  Save(2);
  ranks_[1].saver->Discard(output_, "runs/r-1-1");  // rank 0 holds it
  EXPECT_THAT(Left(), ElementsAre(".out.espalier-runs-r-1-1"));
  ranks_[0].saver->Discard(output_, "runs/r-1-1");
  EXPECT_THAT(Left(), IsEmpty());
  EXPECT_THAT(Publish(PublishRequest()), HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
  Save(2);
  ASSERT_OK(Publish(PublishRequest()));
  EXPECT_THAT(Publish(PublishRequest()), HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
}

TEST_F(SaveTest, WhatAKilledSaveLeftIsSweptByTheNext) {  // known-bugs 52
  WriteFile(outputs_ + "/.out.espalier-runs-r-0-9/model.safetensors", "half");
  EXPECT_THAT(Checkpoint::Open(output_), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID));
  Save(2);
  EXPECT_THAT(Left(), ElementsAre(".out.espalier-runs-r-1-1"));
  ASSERT_OK(Publish(PublishRequest()));
  // And whoever saves no more can still remove it.
  WriteFile(outputs_ + "/.out.espalier-runs-r-0-9/model.safetensors", "half");
  ranks_[1].saver->Discard(output_, "runs/r-0-9");
  EXPECT_THAT(Left(), ElementsAre("out"));
}

TEST_F(SaveTest, RanksThatHoldOtherMasksDoNotSave) {  // known-bugs 54
  Save(2, [](int rank, SaveRequest&, Rank& r) {
    if (rank == 1) r.masks.erase("l1.weight");
  });
  ExpectEveryRankFails(v1::ERROR_REASON_INVARIANT, "different");
}

TEST_F(SaveTest, ChecksumsWithAGapArePublishedByNobody) {
  Save(2);
  v1::PublishCheckpoint request = PublishRequest();
  request.mutable_checksums()->DeleteSubrange(1, 1);
  EXPECT_THAT(Publish(request), HasReason(v1::ERROR_REASON_INVARIANT));
  ranks_.clear();
  EXPECT_THAT(Left(), IsEmpty());
}

TEST_F(SaveTest, AfterTheDeadlineNothingIsSaved) {
  const auto now = clock_.Monotonic();
  Save(2, [&](int rank, SaveRequest& request, Rank&) {
    // It passes while rank 1 writes.
    request.deadline = now + absl::Seconds(1);
    if (rank == 1) request.progress = [this](int64_t, int64_t) { clock_.Advance(absl::Seconds(1)); };
  });
  ExpectEveryRankFails(v1::ERROR_REASON_DEADLINE, "took too long");
  Save(2);
  EXPECT_THAT(Publish(PublishRequest(), clock_.Monotonic()), HasReason(v1::ERROR_REASON_DEADLINE));
  EXPECT_THAT(Left(), IsEmpty());
}

TEST_F(SaveTest, ALostRankEndsTheSaveOfTheOthers) {
  const Checkpoint source = *Checkpoint::Open(model_);
  ThreadGroup group(2);
  group.Run([&](Collective& collective) {
    if (collective.rank() == 1) return group.Lose(1);
    CheckpointSaver saver;
    const ShardTable shards = *LoadShards(source, 0, 2);
    EXPECT_THAT(saver.SaveShards(Request(), source, shards, {}, collective), HasReason(v1::ERROR_REASON_WORKER_LOST));
  });
  EXPECT_THAT(Left(), IsEmpty());
}

TEST_F(SaveTest, ProgressReachesTheWhole) {
  std::vector<std::pair<int64_t, int64_t>> last(2);
  Save(2, [&](int rank, SaveRequest& request, Rank&) {
    request.progress = [&last, rank](int64_t done, int64_t total) { last[static_cast<size_t>(rank)] = {done, total}; };
  });
  for (const auto& [done, total] : last) {
    EXPECT_GT(total, 0);
    EXPECT_EQ(done, total);
  }
}

TEST_F(SaveTest, MaskRowsOfAForeignFileAreChecked) {
  Save(1);
  ASSERT_OK(Publish(PublishRequest()));
  const std::string masks = output_ + "/espalier/masks.safetensors";
  const std::string good = ReadFile(masks);
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    WriteFile(masks, bytes);
    auto checkpoint = Checkpoint::Open(output_);
    absl::Status status = checkpoint.status();
    if (checkpoint.ok()) status = LoadStoredMasks(*checkpoint, *LoadShards(*checkpoint, 0, 1)).status();
    EXPECT_THAT(status,
                HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, AllOf(HasSubstr("masks.safetensors"), HasSubstr(what))));
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string out = good;
    out.replace(out.find(from), from.size(), to);
    return out;
  };
  refused(good.substr(0, good.size() - 1), "cut short");
  refused(good + "x", "after the last tensor");
  refused(replaced("espalier.masks.v1", "espalier.masks.v9"), "format");
  refused(replaced("l1.weight\\\":[5,9]", "l1.weight\\\":[9,5]"), "another shape");
  refused(replaced("\"l2.weight\":{", "\"lx.weight\":{"), "lx.weight");
  std::string padding = good;
  padding.back() = '\xff';  // rows of 4 bits
  refused(padding, "l3.weight");
  EXPECT_THAT(Checkpoint::Open(output_, {.ignore_stored_masks = true}), testing::IsOk());
}

TEST_F(SaveTest, VerifyNamesEachDifference) {
  Save(2);
  ASSERT_OK(Publish(PublishRequest()));
  const auto differences = [&] {
    std::map<std::string, std::string> out;
    const auto verified = VerifyDirectory(output_);
    EXPECT_OK(verified);
    if (!verified.ok()) return out;
    for (const Difference& d : verified->differences) out[d.file] += d.what + "\n";
    return out;
  };
  const auto change = [&](const std::string& file, const std::string& bytes, const std::string& what) {
    const std::string before = ReadFile(output_ + "/" + file);
    WriteFile(output_ + "/" + file, bytes);
    EXPECT_THAT(differences(), ::testing::Contains(Pair(file, HasSubstr(what)))) << file;
    WriteFile(output_ + "/" + file, before);
  };
  const auto flipped = [&](const std::string& file) {
    std::string bytes = ReadFile(output_ + "/" + file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    return bytes;
  };
  EXPECT_THAT(differences(), IsEmpty());
  change("config.json", "{}", "bytes");
  change("tokenizer.json", flipped("tokenizer.json"), "checksum");
  change("model.safetensors", flipped("model.safetensors"), "checksum");
  change("espalier/masks.safetensors", flipped("espalier/masks.safetensors"), "checksum");
  const std::string manifest = ReadFile(output_ + "/espalier/espalier.json");
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string out = manifest;
    EXPECT_NE(out.find(from), std::string::npos) << from;
    return out.replace(out.find(from), from.size(), to);
  };
  change("espalier/espalier.json", edited("\"recipe\": \"stage", "\"recipe\": \"stale"), "recipe");
  change("espalier/espalier.json", edited("then_stage: {", "then_stage: { "), "recipe");
  change("espalier/espalier.json", edited("\"prunable_sparse\": ", "\"prunable_sparse\": 1"), "sums");
  WriteFile(output_ + "/stray.safetensors", "x");
  EXPECT_THAT(differences(), ::testing::Contains(Key("stray.safetensors")));
  fs::remove(output_ + "/stray.safetensors");
  fs::remove(output_ + "/tokenizer.json");
  EXPECT_THAT(differences(), ElementsAre(Pair("tokenizer.json", HasSubstr("No such file"))));
  WriteFile(output_ + "/espalier/espalier.json", manifest.substr(0, manifest.size() / 2));
  EXPECT_THAT(VerifyDirectory(output_), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, HasSubstr("espalier.json")));
  EXPECT_THAT(VerifyDirectory(model_), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, HasSubstr("inspect")));
}

class CheckOutputTest : public SaveTest {};

TEST_F(CheckOutputTest, BeforeAnyWork) {  // known-bugs 33
  EXPECT_THAT(CheckOutput(dir_ / "new/deep/out", false, {}, ""), testing::IsOk());
  EXPECT_FALSE(fs::exists(dir_ / "new"));
  EXPECT_THAT(CheckOutput(model_, false, {}, ""), HasReason(v1::ERROR_REASON_OUTPUT_EXISTS));
  EXPECT_THAT(CheckOutput(model_, true, {}, dir_ / "other"), testing::IsOk());
  fs::create_directory(dir_ / "empty");
  EXPECT_THAT(CheckOutput(dir_ / "empty", false, {}, ""), HasReason(v1::ERROR_REASON_OUTPUT_EXISTS));
  EXPECT_THAT(CheckOutput(dir_ / "empty", true, {}, ""), testing::IsOk());
  WriteFile(dir_ / "home/letters", "x");
  EXPECT_THAT(CheckOutput(dir_ / "home", true, {}, ""),
              HasReason(v1::ERROR_REASON_OUTPUT_EXISTS, HasSubstr("remove it yourself")));
  EXPECT_THAT(CheckOutput(dir_ / "home/letters", true, {}, ""), HasReason(v1::ERROR_REASON_OUTPUT_EXISTS));
  EXPECT_THAT(CheckOutput(dir_ / "home/letters/out", false, {}, ""),
              HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, HasSubstr("letters")));
  EXPECT_THAT(CheckOutput("/proc", true, {}, ""),
              HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, HasSubstr("use a folder in it")));
  const PathRoots roots = *PathRoots::Create({model_});
  EXPECT_THAT(CheckOutput(dir_ / "new", false, roots, ""), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED));
}

TEST_F(CheckOutputTest, WhatHoldsTheModelIsNotOverwritten) {
  const auto refused = HasReason(v1::ERROR_REASON_OUTPUT_EXISTS, HasSubstr("holds the model"));
  EXPECT_THAT(CheckOutput(model_, true, {}, model_), refused);
  EXPECT_THAT(CheckOutput(model_, true, {}, model_ + "/stray.safetensors"), refused);
  WriteFile(dir_ / "config.json", "{}");  // the folder around it, which passes for a checkpoint
  EXPECT_THAT(CheckOutput(std::string(dir_.path()), true, {}, model_), refused);
  fs::create_directory_symlink(model_, dir_ / "link");
  EXPECT_THAT(CheckOutput(model_, true, {}, dir_ / "link"), refused);
  EXPECT_THAT(CheckOutput(dir_ / "link", true, {}, model_), refused);
}

TEST_F(CheckOutputTest, AFileSystemThatTakesNothing) {
  // /proc takes no directories from anybody.
  output_ = "/proc/espalier-out";
  Save(2);
  for (const Rank& rank : ranks_) {
    EXPECT_THAT(rank.saved, HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, HasSubstr("/proc")));
    EXPECT_NE(MetadataOf(rank.saved.status(), "errno"), "0");
  }
}

}  // namespace
}  // namespace espalier
