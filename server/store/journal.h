#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier {

// One row. A later row replaces an earlier one of the same (kind, run, key). What `value` holds is the business of who
// writes it.
struct JournalRecord {
  std::string kind;  // e.g. "run", "event", "request"
  std::string run;   // id of the run it belongs to; empty for none
  std::string key;   // e.g. a revision as zero-padded decimal
  std::string value;
  bool erase = false;  // forgets (kind, run, key); with an empty kind everything of `run`

  bool operator==(const JournalRecord&) const = default;
};

// What the coordinator must not forget: an append-only log of rows in SQLite (WAL, synchronous=FULL,
// locking_mode=EXCLUSIVE, which is the single-writer lock). Every row carries a CRC-32 chained to the row before, since
// SQLite's pages have no checksum: a changed, missing or reordered row is found at the next open. Not thread-safe: the
// event loop owns it.
class Journal {
 public:
  virtual ~Journal() = default;

  // Opens or creates `directory`/journal.sqlite and reads it whole.
  // JOURNAL_CORRUPT: rows do not read back as written; the file is left as it is (move it away to start afresh).
  // STORAGE_UNWRITABLE: cannot be created, or another process has it open.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& directory);

  // All rows that stand, in the order in which they were last written.
  virtual std::vector<JournalRecord> Read() const = 0;

  // Appends all rows in one transaction: when it returns OK they survive kill -9 and power loss, otherwise none was
  // written. STORAGE_UNWRITABLE.
  virtual absl::Status Append(absl::Span<const JournalRecord> records) = 0;

  // Rows appended since the start; for tests and metrics.
  virtual int64_t writes() const = 0;
};

// A journal that lives as long as the object, for tests and for embedded coordinators without a state directory.
std::unique_ptr<Journal> NewMemoryJournal();

}  // namespace espalier
