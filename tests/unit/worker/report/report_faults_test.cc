#include <cstdlib>

#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"
#include "tests/support/thread_collective.h"
#include "tests/unit/worker/report/test_model.h"
#include "worker/report/report.h"

namespace espalier {
namespace {

using testing::FoundingModel;
using testing::MakeRank;
using testing::TestRank;

int64_t SparseOf(std::vector<TestRank>& ranks, v1::ReportMode mode) {
  testing::ThreadGroup group(static_cast<int>(ranks.size()));
  int64_t sparse = -1;
  group.Run([&](Collective& collective) {
    const size_t r = static_cast<size_t>(collective.rank());
    const auto rows = ComputeReport(ranks[r].shards, ranks[r].masks, collective, {.mode = mode});
    if (rows.ok() && r == 0) sparse = Summarize(*rows, 1).sparse();
  });
  return sparse;
}

// GATHER counts what it gathered: spoilt bytes show there, and not in SHARD_COUNTS.
TEST(ReportFaultsTest, ACorruptedChunkChangesGatherAlone) {
  const testing::TempDir dir;
  std::vector<TestRank> ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(MakeRank(FoundingModel(), r, 2));
  setenv("ESPALIER_FAULT_LOG", (dir / "log").c_str(), 1);
  setenv("ESPALIER_FAULT", "gather_chunk=corrupt", 1);
  EXPECT_EQ(SparseOf(ranks, v1::REPORT_MODE_SHARD_COUNTS), 2322540);
  EXPECT_EQ(testing::ReadFile(dir / "log"), "");
  const int64_t corrupted = SparseOf(ranks, v1::REPORT_MODE_GATHER);
  EXPECT_NE(corrupted, -1);
  EXPECT_NE(corrupted, 2322540);
  EXPECT_THAT(testing::ReadFile(dir / "log"), ::testing::HasSubstr("gather_chunk@1\n"));
  unsetenv("ESPALIER_FAULT");
  EXPECT_EQ(SparseOf(ranks, v1::REPORT_MODE_GATHER), 2322540);
}

}  // namespace
}  // namespace espalier
