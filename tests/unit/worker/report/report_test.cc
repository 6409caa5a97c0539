#include "worker/report/report.h"

#include <mutex>
#include <numeric>

#include "tests/support/status_matchers.h"
#include "tests/support/thread_collective.h"
#include "tests/unit/worker/report/test_model.h"
#include "worker/collective/single_process.h"
#include "worker/report/report_json.h"

namespace espalier {
namespace {

using testing::FoundingModel;
using testing::HasReason;
using testing::IsZeroAt;
using testing::MakeRank;
using testing::TestParameter;
using testing::TestRank;
using testing::ThreadGroup;

using Rows = std::vector<v1::ParameterSparsity>;

struct Outcome {
  std::vector<absl::StatusOr<Rows>> rows;  // by rank
  int64_t bytes_moved = 0;
};

Outcome ReportOf(std::vector<TestRank>& ranks, v1::ReportMode mode) {
  const int world = static_cast<int>(ranks.size());
  Outcome outcome;
  for (int r = 0; r < world; ++r) outcome.rows.emplace_back(absl::UnknownError("not run"));
  const auto compute = [&](Collective& collective) {
    const size_t r = static_cast<size_t>(collective.rank());
    outcome.rows[r] = ComputeReport(ranks[r].shards, ranks[r].masks, collective, {.mode = mode, .command_id = 7});
  };
  if (world == 1) {
    SingleProcess alone;
    compute(alone);
    return outcome;
  }
  ThreadGroup group(world);
  group.Run(compute);
  for (int r = 0; r < world; ++r) outcome.bytes_moved += group.rank(r).bytes_sent();
  return outcome;
}

std::vector<TestRank> MakeRanks(const std::vector<TestParameter>& model, int world_size) {
  std::vector<TestRank> ranks;
  for (int r = 0; r < world_size; ++r) ranks.push_back(MakeRank(model, r, world_size));
  return ranks;
}

Outcome ReportOf(const std::vector<TestParameter>& model, int world_size, v1::ReportMode mode) {
  std::vector<TestRank> ranks = MakeRanks(model, world_size);
  return ReportOf(ranks, mode);
}

// Dtypes and shapes of all sorts; masks on three of them.
std::vector<TestParameter> MixedModel() {
  return {{"a.weight", {7, 9}, 20, v1::DTYPE_BF16, true},
          {"b.weight", {70, 3}, 101, v1::DTYPE_F64, true},
          {"c.bias", {5}, 2, v1::DTYPE_F16},
          {"d.empty", {0}, 0, v1::DTYPE_F32},
          {"e.empty.weight", {4, 0}, 0, v1::DTYPE_F32},
          {"f.scalar", {}, 1, v1::DTYPE_F32},
          {"g.one_row.weight", {1, 130}, 65, v1::DTYPE_F32, true},
          {"h.ids", {6}, 3, v1::DTYPE_I64},
          {"i.fp8.weight", {6, 2}, 3, v1::DTYPE_F8_E4M3},
          {"j.flags", {9}, 4, v1::DTYPE_BOOL}};
}

class FoundingTest : public ::testing::TestWithParam<std::tuple<int, v1::ReportMode>> {};

TEST_P(FoundingTest, GivesTheFoundingFigures) {
  const auto [world_size, mode] = GetParam();
  const Outcome outcome = ReportOf(FoundingModel(), world_size, mode);
  ASSERT_OK_AND_ASSIGN(const Rows rows, outcome.rows[0]);
  const v1::SparsitySummary summary = Summarize(rows, 1);
  EXPECT_EQ(summary.total(), 15191712);
  EXPECT_EQ(summary.sparse(), 2322540);
  EXPECT_EQ(summary.prunable(), 15187968);
  EXPECT_EQ(summary.prunable_sparse(), 2322540);
  EXPECT_EQ(summary.prunable_sparsity_percent(), 15.291973225121358);
  EXPECT_EQ(summary.masked(), 2322540);
  EXPECT_EQ(summary.quantizable(), 15187968);
  EXPECT_EQ(summary.quantized(), 0);

  const int64_t tensors = static_cast<int64_t>(rows.size());
  EXPECT_EQ(tensors, 56);
  const int64_t model_bytes = 15191712 * int64_t{4};
  if (world_size == 1) {
    EXPECT_EQ(outcome.bytes_moved, 0);
  } else if (mode == v1::REPORT_MODE_SHARD_COUNTS) {
    EXPECT_EQ(outcome.bytes_moved, 16 * tensors * world_size);
  } else {
    EXPECT_GE(outcome.bytes_moved, model_bytes * (world_size - 1) / world_size);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FoundingTest,
                         ::testing::Combine(::testing::Values(1, 3),
                                            ::testing::Values(v1::REPORT_MODE_SHARD_COUNTS, v1::REPORT_MODE_GATHER)));

TEST(ReportTest, IsTheSameForEveryWorldSizeAndMode) {
  std::string first;
  for (int world_size = 1; world_size <= 5; ++world_size) {
    for (const v1::ReportMode mode : {v1::REPORT_MODE_SHARD_COUNTS, v1::REPORT_MODE_GATHER}) {
      const Outcome outcome = ReportOf(MixedModel(), world_size, mode);
      ASSERT_OK_AND_ASSIGN(const Rows rows, outcome.rows[0]);
      const std::string json = ReportToJson(rows, Summarize(rows, 1), nullptr);
      if (first.empty()) first = json;
      EXPECT_EQ(json, first) << world_size << " " << v1::ReportMode_Name(mode);
    }
  }
}

TEST(ReportTest, CountsWhatTheTensorsHold) {
  const std::vector<TestParameter> model = MixedModel();
  const Outcome outcome = ReportOf(model, 3, v1::REPORT_MODE_GATHER);
  ASSERT_OK_AND_ASSIGN(const Rows rows, outcome.rows[0]);
  ASSERT_EQ(rows.size(), model.size());
  for (size_t i = 0; i < model.size(); ++i) {
    EXPECT_EQ(rows[i].name(), model[i].name);
    EXPECT_EQ(rows[i].dtype(), model[i].dtype);
    EXPECT_EQ(rows[i].zeros(), model[i].zeros) << model[i].name;
    EXPECT_EQ(rows[i].masked(), model[i].masked ? model[i].zeros : 0) << model[i].name;
    EXPECT_EQ(rows[i].numel(), NumElements(model[i].shape));
    EXPECT_EQ(rows[i].planned(), model[i].masked ? model[i].zeros : -1);
    EXPECT_EQ(rows[i].mask_version(), model[i].masked ? 1 : 0);
  }
}

TEST(ReportTest, StandsOnAllRanksOrOnRankZeroAlone) {
  const Outcome counts = ReportOf(MixedModel(), 3, v1::REPORT_MODE_SHARD_COUNTS);
  const Outcome gather = ReportOf(MixedModel(), 3, v1::REPORT_MODE_GATHER);
  for (size_t r = 0; r < 3; ++r) {
    ASSERT_OK(counts.rows[r]);
    ASSERT_OK(gather.rows[r]);
    EXPECT_EQ(counts.rows[r]->size(), MixedModel().size());
    EXPECT_EQ(gather.rows[r]->size(), r == 0 ? MixedModel().size() : 0u);
  }
}

// known-bugs 13: zeros of the live tensor and positions of the mask are two numbers.
TEST(ReportTest, ZerosAndMaskedAreCountedApart) {
  std::vector<TestRank> ranks = MakeRanks({{"w.weight", {4, 4}, 6, v1::DTYPE_F32, true}}, 2);
  ASSERT_OK_AND_ASSIGN(const Shard live, ranks[1].shards.Lookup("w.weight"));
  std::fill(live.storage->bytes().begin(), live.storage->bytes().end(), std::byte{1});
  for (const v1::ReportMode mode : {v1::REPORT_MODE_SHARD_COUNTS, v1::REPORT_MODE_GATHER}) {
    const Outcome outcome = ReportOf(ranks, mode);
    ASSERT_OK_AND_ASSIGN(const Rows rows, outcome.rows[0]);
    EXPECT_EQ(rows[0].zeros(), 3);
    EXPECT_EQ(rows[0].masked(), 6);
  }
}

// known-bugs 1 and 2: a report looks the live tensors and masks up; what was there before does not count.
TEST(ReportTest, FollowsTheStorageAndMaskOfTheMoment) {
  std::vector<TestRank> ranks = MakeRanks({{"w.weight", {2, 4}, 4, v1::DTYPE_F32, true}}, 1);
  ASSERT_OK(ranks[0].shards.Rebind("w.weight", Storage::Allocate(32).value()));
  ranks[0].masks["w.weight"].bits = std::make_shared<const Bitmask>(8, /*keep=*/false);
  Outcome outcome = ReportOf(ranks, v1::REPORT_MODE_SHARD_COUNTS);
  ASSERT_OK(outcome.rows[0]);
  EXPECT_EQ((*outcome.rows[0])[0].zeros(), 8);
  EXPECT_EQ((*outcome.rows[0])[0].masked(), 8);
  ranks[0].masks.clear();
  outcome = ReportOf(ranks, v1::REPORT_MODE_SHARD_COUNTS);
  ASSERT_OK(outcome.rows[0]);
  EXPECT_EQ((*outcome.rows[0])[0].masked(), 0);
}

// known-bugs 22: a gather that reads changes no shard.
TEST(ReportTest, GatherLeavesTheShardsAsTheyAre) {
  std::vector<TestRank> ranks = MakeRanks(MixedModel(), 3);
  std::vector<std::vector<std::byte>> before;
  const auto bytes = [&](size_t r, const std::string& name) { return ranks[r].shards.Lookup(name)->storage->bytes(); };
  for (size_t r = 0; r < 3; ++r) {
    for (const std::string& name : ranks[r].shards.names())
      before.emplace_back(bytes(r, name).begin(), bytes(r, name).end());
  }
  ASSERT_OK(ReportOf(ranks, v1::REPORT_MODE_GATHER).rows[0]);
  size_t i = 0;
  for (size_t r = 0; r < 3; ++r) {
    for (const std::string& name : ranks[r].shards.names()) {
      const auto now = bytes(r, name);
      EXPECT_TRUE(std::equal(now.begin(), now.end(), before[i].begin(), before[i].end())) << name;
      ++i;
    }
  }
}

// Ranges that cut rows and words of the mask, as flat shards do.
TEST(ReportTest, RangesNeedNotBeRows) {
  const TestParameter model{"w.weight", {5, 40}, 77, v1::DTYPE_BF16};
  const std::vector<ShardRange> ranges = {{0, 33}, {33, 33}, {33, 200}};
  std::vector<TestRank> ranks;
  for (size_t r = 0; r < ranges.size(); ++r) {
    TestRank rank{.shards = ShardTable(static_cast<int>(r), 3), .masks = {}};
    v1::Parameter parameter;
    parameter.set_name(model.name);
    parameter.set_dtype(model.dtype);
    for (const int64_t dimension : model.shape) parameter.add_shape(dimension);
    ClassifyParameter({}, parameter);
    const std::shared_ptr<Storage> storage = Storage::Allocate(ranges[r].size() * 2).value();
    for (int64_t i = ranges[r].begin; i < ranges[r].end; ++i) {
      if (!IsZeroAt(model, i)) storage->bytes()[static_cast<size_t>(2 * (i - ranges[r].begin))] = std::byte{1};
    }
    rank.masks[model.name].bits = std::make_shared<const Bitmask>(MaskOfZeros(model.dtype, storage->bytes()));
    ASSERT_OK(rank.shards.Add(parameter, ranges[r], storage));
    ranks.push_back(std::move(rank));
  }
  for (const v1::ReportMode mode : {v1::REPORT_MODE_SHARD_COUNTS, v1::REPORT_MODE_GATHER}) {
    const Outcome outcome = ReportOf(ranks, mode);
    ASSERT_OK_AND_ASSIGN(const Rows rows, outcome.rows[0]);
    EXPECT_EQ(rows[0].zeros(), 77);
    EXPECT_EQ(rows[0].masked(), 77);
  }
}

TEST(ReportTest, GatherRefusesRangesWithAGapOnAllRanks) {
  std::vector<TestRank> ranks;
  for (int r = 0; r < 2; ++r) {
    TestRank rank{.shards = ShardTable(r, 2), .masks = {}};
    v1::Parameter parameter;
    parameter.set_name("w.weight");
    parameter.set_dtype(v1::DTYPE_F32);
    parameter.add_shape(10);
    ASSERT_OK(rank.shards.Add(parameter, {r * 5, r * 5 + 4}, Storage::Allocate(16).value()));
    ranks.push_back(std::move(rank));
  }
  const Outcome outcome = ReportOf(ranks, v1::REPORT_MODE_GATHER);
  for (const auto& rows : outcome.rows) {
    EXPECT_THAT(rows, HasReason(v1::ERROR_REASON_INVARIANT, ::testing::HasSubstr("w.weight")));
  }
}

TEST(ReportTest, ALostRankEndsTheReportOnTheOthers) {
  for (const v1::ReportMode mode : {v1::REPORT_MODE_SHARD_COUNTS, v1::REPORT_MODE_GATHER}) {
    std::vector<TestRank> ranks = MakeRanks(MixedModel(), 3);
    ThreadGroup group(3);
    group.Lose(2);
    std::vector<absl::Status> statuses(3);
    group.Run([&](Collective& collective) {
      const size_t r = static_cast<size_t>(collective.rank());
      if (r == 2) return;
      statuses[r] = ComputeReport(ranks[r].shards, ranks[r].masks, collective, {.mode = mode}).status();
    });
    EXPECT_THAT(statuses[0], HasReason(v1::ERROR_REASON_WORKER_LOST));
    EXPECT_THAT(statuses[1], HasReason(v1::ERROR_REASON_WORKER_LOST));
  }
}

TEST(ReportTest, TellsItsProgress) {
  TestRank rank = MakeRank(MixedModel(), 0, 1);
  SingleProcess alone;
  std::vector<std::pair<int64_t, int64_t>> told;
  ASSERT_OK(ComputeReport(rank.shards, rank.masks, alone,
                          {.progress = [&](int64_t done, int64_t total) { told.emplace_back(done, total); }}));
  ASSERT_EQ(told.size(), MixedModel().size());
  EXPECT_EQ(told.front(), std::make_pair(int64_t{1}, int64_t{10}));
  EXPECT_EQ(told.back(), std::make_pair(int64_t{10}, int64_t{10}));
}

TEST(ReportTest, OfNothingIsNothing) {
  const Outcome outcome = ReportOf(std::vector<TestParameter>{}, 2, v1::REPORT_MODE_GATHER);
  ASSERT_OK_AND_ASSIGN(const Rows rows, outcome.rows[0]);
  EXPECT_TRUE(rows.empty());
}

v1::ParameterSparsity Row(int64_t numel, int64_t zeros, bool prunable) {
  v1::ParameterSparsity row;
  row.set_numel(numel);
  row.set_zeros(zeros);
  row.set_prunable(prunable);
  return row;
}

// known-bugs 20: nothing is divided by nothing.
TEST(SummarizeTest, EmptyModelsAreZeroPercent) {
  const v1::SparsitySummary nothing = Summarize({}, 0);
  EXPECT_EQ(nothing.sparsity_percent(), 0);
  EXPECT_EQ(nothing.prunable_sparsity_percent(), 0);
  const Rows rows = {Row(0, 0, true), Row(5, 5, false)};
  EXPECT_EQ(Summarize(rows, 0).prunable_sparsity_percent(), 0);
  EXPECT_EQ(Summarize(rows, 0).sparsity_percent(), 100);
}

// known-bugs 13: overall sparsity is not the mean of the parameters'.
TEST(SummarizeTest, WeighsParametersByTheirSize) {
  const Rows rows = {Row(900, 0, true), Row(100, 100, true)};
  EXPECT_EQ(Summarize(rows, 3).prunable_sparsity_percent(), 10);
  EXPECT_EQ(Summarize(rows, 3).mask_version(), 3);
}

// known-bugs 12
TEST(SummarizeTest, SumsAreExactIntegers) {
  const int64_t big = (int64_t{1} << 53) + 1;
  const Rows rows = {Row(big, big, true), Row(2, 1, true)};
  EXPECT_EQ(Summarize(rows, 0).sparse(), big + 1);
  EXPECT_EQ(Summarize(rows, 0).total(), big + 2);
}

}  // namespace
}  // namespace espalier
