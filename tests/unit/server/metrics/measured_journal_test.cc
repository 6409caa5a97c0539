#include "server/metrics/measured_journal.h"

#include "gmock/gmock.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

// Takes its time, and may fail.
class SlowJournal final : public Journal {
 public:
  explicit SlowJournal(testing::FakeClock& clock) : clock_(clock) {}
  std::vector<JournalRecord> Read() const override { return {{"run", "runs/a", "", "value"}}; }
  absl::Status Append(absl::Span<const JournalRecord> records) override {
    clock_.Advance(absl::Milliseconds(3));
    return records.empty() ? absl::InternalError("no rows") : absl::OkStatus();
  }
  int64_t writes() const override { return 7; }

 private:
  testing::FakeClock& clock_;
};

TEST(MeasuredJournalTest, CountsAndTimesWrites) {
  testing::FakeClock clock;
  Metrics metrics(Metrics::Program::kCoordinator);
  MeasuredJournal journal(std::make_unique<SlowJournal>(clock), metrics, clock);
  EXPECT_EQ(journal.Read().size(), 1u);
  EXPECT_EQ(journal.writes(), 7);
  EXPECT_THAT(metrics.Text(), HasSubstr("espalier_journal_writes_total{outcome=\"failed\"} 0\n"));
  const std::vector<JournalRecord> rows = journal.Read();
  EXPECT_OK(journal.Append(rows));
  EXPECT_OK(journal.Append(rows));
  EXPECT_FALSE(journal.Append({}).ok());
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("espalier_journal_writes_total{outcome=\"written\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("espalier_journal_writes_total{outcome=\"failed\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("espalier_journal_write_duration_seconds_bucket{le=\"0.002\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("espalier_journal_write_duration_seconds_bucket{le=\"0.004\"} 3\n"));
}

}  // namespace
}  // namespace espalier
