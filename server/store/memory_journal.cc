#include <algorithm>

#include "server/store/journal_rows.h"

namespace espalier {

void JournalRows::Apply(int64_t sequence, const JournalRecord& record) {
  if (!record.erase) {
    rows_[{record.kind, record.run, record.key}] = {sequence, record.value};
  } else if (record.kind.empty()) {
    std::erase_if(rows_, [&](const auto& row) { return std::get<1>(row.first) == record.run; });
  } else {
    rows_.erase({record.kind, record.run, record.key});
  }
}

std::vector<JournalRecord> JournalRows::InOrder() const {
  std::vector<std::pair<int64_t, JournalRecord>> rows;
  rows.reserve(rows_.size());
  for (const auto& [key, row] : rows_) {
    rows.emplace_back(row.sequence, JournalRecord{std::get<0>(key), std::get<1>(key), std::get<2>(key), row.value});
  }
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<JournalRecord> out;
  out.reserve(rows.size());
  for (auto& row : rows) out.push_back(std::move(row.second));
  return out;
}

namespace {

class MemoryJournal final : public Journal {
 public:
  std::vector<JournalRecord> Read() const override { return rows_.InOrder(); }
  absl::Status Append(absl::Span<const JournalRecord> records) override {
    for (const JournalRecord& record : records) rows_.Apply(++writes_, record);
    return absl::OkStatus();
  }
  int64_t writes() const override { return writes_; }

 private:
  JournalRows rows_;
  int64_t writes_ = 0;
};

}  // namespace

std::unique_ptr<Journal> NewMemoryJournal() {
  return std::make_unique<MemoryJournal>();
}

}  // namespace espalier
