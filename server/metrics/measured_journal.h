#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/metrics/metrics.h"
#include "proto/support/clock.h"
#include "server/store/journal.h"

namespace espalier {

// A journal whose writes are counted and timed. Not thread-safe, as the journal itself.
class MeasuredJournal final : public Journal {
 public:
  // `metrics` and `clock` outlive it.
  MeasuredJournal(std::unique_ptr<Journal> journal, Metrics& metrics, const Clock& clock)
      : journal_(std::move(journal)), metrics_(metrics), clock_(clock) {
    for (const char* outcome : {"written", "failed"}) metrics_.Create(metric::kJournalWrites, {outcome});
  }

  std::vector<JournalRecord> Read() const override { return journal_->Read(); }
  absl::Status Append(absl::Span<const JournalRecord> records) override {
    const absl::Duration start = clock_.Monotonic();
    absl::Status status = journal_->Append(records);
    metrics_.Observe(metric::kJournalSeconds, absl::ToDoubleSeconds(clock_.Monotonic() - start));
    metrics_.Count(metric::kJournalWrites, {status.ok() ? "written" : "failed"});
    return status;
  }
  int64_t writes() const override { return journal_->writes(); }

 private:
  const std::unique_ptr<Journal> journal_;
  Metrics& metrics_;
  const Clock& clock_;
};

}  // namespace espalier
