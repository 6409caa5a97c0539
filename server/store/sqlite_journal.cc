#include <sqlite3.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/status_macros.h"
#include "server/store/journal_rows.h"

namespace espalier {
namespace {

// Rows are numbered from 1 without gaps and chained; `tip` holds the number and checksum of the last, so that a journal cut at its
// end is found too.
constexpr char kSchema[] =
    "CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, run TEXT NOT NULL, key TEXT NOT NULL,"
    " erase INTEGER NOT NULL, value BLOB NOT NULL, crc INTEGER NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS tip (one INTEGER PRIMARY KEY CHECK (one = 1), rows INTEGER NOT NULL, crc INTEGER NOT "
    "NULL)"
    " STRICT;"
    "INSERT OR IGNORE INTO tip VALUES (1, 0, 0);";

// A log of more bytes than this, most of them in dead rows, is rewritten: at open, and when it has doubled since it was last
// looked at.
constexpr int64_t kCompactAbove = int64_t{4} << 20;

int64_t SizeOf(const JournalRecord& record) {
  constexpr int64_t kRow = 32;  // numbers, and SQLite's own
  return kRow + static_cast<int64_t>(record.kind.size() + record.run.size() + record.key.size() + record.value.size());
}

struct StatementDeleter {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, StatementDeleter>;

uint32_t ChainCrc(uint32_t previous, int64_t sequence, const JournalRecord& record) {
  // Lengths stand before the texts, so that no two different rows have the same bytes.
  const std::string head =
      absl::StrCat(sequence, ":", record.erase ? 1 : 0, ":", record.kind.size(), ":", record.run.size(), ":",
                   record.key.size(), ":", record.value.size(), ":", record.kind, record.run, record.key);
  const uint32_t crc = Crc32(previous, head.data(), head.size());
  return Crc32(crc, record.value.data(), record.value.size());
}

class SqliteJournal final : public Journal {
 public:
  explicit SqliteJournal(std::string path) : path_(std::move(path)) {}
  ~SqliteJournal() override {
    insert_.reset();
    tip_.reset();
    sqlite3_close(db_);
  }

  absl::Status Init() {
    if (sqlite3_open_v2(path_.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW,
                        nullptr) != SQLITE_OK) {
      return Unwritable("open");
    }
    // EXCLUSIVE before WAL: then no shared memory is needed, and a second process is refused at its first access.
    ESPALIER_RETURN_IF_ERROR(
        Execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"));
    ESPALIER_RETURN_IF_ERROR(Execute(kSchema));
    ESPALIER_RETURN_IF_ERROR(ReadAll());
    ESPALIER_ASSIGN_OR_RETURN(insert_, Prepare("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)"));
    ESPALIER_ASSIGN_OR_RETURN(tip_, Prepare("UPDATE tip SET rows = ?, crc = ?"));
    CompactIfWorthIt();
    return absl::OkStatus();
  }

  std::vector<JournalRecord> Read() const override { return rows_.InOrder(); }
  int64_t writes() const override { return writes_; }

  absl::Status Append(absl::Span<const JournalRecord> records) override {
    if (records.empty()) return absl::OkStatus();
    ESPALIER_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
    int64_t sequence = sequence_;
    uint32_t crc = crc_;
    if (absl::Status status = Write(records, sequence, crc); !status.ok()) {
      // What failed to commit must not stay open; a rollback that fails too leaves the connection unusable, and every
      // further append then fails at BEGIN.
      Execute("ROLLBACK").IgnoreError();
      return status;
    }
    for (size_t i = 0; i < records.size(); ++i) rows_.Apply(sequence_ + 1 + static_cast<int64_t>(i), records[i]);
    for (const JournalRecord& record : records) logged_bytes_ += SizeOf(record);
    sequence_ = sequence;
    crc_ = crc;
    writes_ += static_cast<int64_t>(records.size());
    CompactIfWorthIt();
    return absl::OkStatus();
  }

 private:
  absl::Status Unwritable(absl::string_view doing) const {
    const std::string why = db_ == nullptr ? "out of memory" : sqlite3_errmsg(db_);
    const bool busy = db_ != nullptr && (sqlite3_errcode(db_) & 0xff) == SQLITE_BUSY;
    return MakeError(v1::ERROR_REASON_STORAGE_UNWRITABLE,
                     absl::StrCat("cannot ", doing, " the journal ", path_, ": ", why,
                                  busy ? "; another coordinator has it open, stop it or choose another --state-dir"
                                       : "; choose a writable directory with --state-dir"),
                     {{"path", path_}});
  }
  absl::Status Corrupt(absl::string_view what) const {
    return MakeError(v1::ERROR_REASON_JOURNAL_CORRUPT,
                     absl::StrCat("the journal ", path_, " does not read back as written: ", what,
                                  "; move it away to start afresh, or restore a copy"),
                     {{"path", path_}, {"what", std::string(what)}});
  }
  // A database that SQLite itself refuses to read is corrupt, not unwritable.
  absl::Status Failed(absl::string_view doing) const {
    const int code = sqlite3_errcode(db_) & 0xff;
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) return Corrupt(sqlite3_errmsg(db_));
    return Unwritable(doing);
  }

  absl::Status Execute(const char* sql) {
    return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus() : Failed("write");
  }

  absl::StatusOr<Statement> Prepare(const char* sql) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db_, sql, -1, &statement, nullptr) != SQLITE_OK) return Failed("read");
    return Statement(statement);
  }

  static std::string Text(sqlite3_stmt* row, int column) {
    const void* data = sqlite3_column_blob(row, column);
    const int size = sqlite3_column_bytes(row, column);
    return size == 0 ? std::string() : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
  }

  absl::Status ReadAll() {
    ESPALIER_ASSIGN_OR_RETURN(Statement query,
                              Prepare("SELECT seq, kind, run, key, erase, value, crc FROM log ORDER BY seq"));
    int step = 0;
    while ((step = sqlite3_step(query.get())) == SQLITE_ROW) {
      const JournalRecord record{Text(query.get(), 1), Text(query.get(), 2), Text(query.get(), 3), Text(query.get(), 5),
                                 sqlite3_column_int(query.get(), 4) != 0};
      const int64_t sequence = sqlite3_column_int64(query.get(), 0);
      if (sequence != sequence_ + 1) return Corrupt(absl::StrCat("row ", sequence_ + 1, " is missing"));
      crc_ = ChainCrc(crc_, sequence, record);
      if (crc_ != static_cast<uint32_t>(sqlite3_column_int64(query.get(), 6))) {
        return Corrupt(absl::StrCat("row ", sequence, " has another checksum"));
      }
      sequence_ = sequence;
      rows_.Apply(sequence, record);
      logged_bytes_ += SizeOf(record);
    }
    if (step != SQLITE_DONE) return Failed("read");
    ESPALIER_ASSIGN_OR_RETURN(query, Prepare("SELECT rows, crc FROM tip"));
    if (sqlite3_step(query.get()) != SQLITE_ROW) return Corrupt("it has no end mark");
    if (sqlite3_column_int64(query.get(), 0) != sequence_ ||
        static_cast<uint32_t>(sqlite3_column_int64(query.get(), 1)) != crc_) {
      return Corrupt(absl::StrCat("it ends at row ", sequence_, " instead of ", sqlite3_column_int64(query.get(), 0)));
    }
    return absl::OkStatus();
  }

  // Inside a transaction; advances sequence and crc.
  absl::Status Write(absl::Span<const JournalRecord> records, int64_t& sequence, uint32_t& crc) {
    for (const JournalRecord& record : records) {
      crc = ChainCrc(crc, ++sequence, record);
      sqlite3_stmt* row = insert_.get();
      const auto text = [&](int column, const std::string& value) {
        return sqlite3_bind_text64(row, column, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8) == SQLITE_OK;
      };
      const bool bound = sqlite3_bind_int64(row, 1, sequence) == SQLITE_OK && text(2, record.kind) &&
                         text(3, record.run) && text(4, record.key) &&
                         sqlite3_bind_int(row, 5, record.erase ? 1 : 0) == SQLITE_OK &&
                         sqlite3_bind_blob64(row, 6, record.value.empty() ? "" : record.value.data(),
                                             record.value.size(), SQLITE_STATIC) == SQLITE_OK &&
                         sqlite3_bind_int64(row, 7, crc) == SQLITE_OK;
      const bool stepped = bound && sqlite3_step(row) == SQLITE_DONE;
      sqlite3_reset(row);
      if (!stepped) return Failed("write");
    }
    sqlite3_bind_int64(tip_.get(), 1, sequence);
    sqlite3_bind_int64(tip_.get(), 2, crc);
    const bool stepped = sqlite3_step(tip_.get()) == SQLITE_DONE;
    sqlite3_reset(tip_.get());
    if (!stepped) return Failed("write");
    return Execute("COMMIT");
  }

  void CompactIfWorthIt() {
    if (logged_bytes_ < look_at_bytes_) return;
    const std::vector<JournalRecord> standing = rows_.InOrder();
    int64_t standing_bytes = 0;
    for (const JournalRecord& row : standing) standing_bytes += SizeOf(row);
    if (logged_bytes_ > 2 * standing_bytes) {
      const absl::Status status = Compact(standing, standing_bytes);
      // All is still there, only larger than it need be.
      if (!status.ok()) LogWarn("journal_not_compacted", {{"error", std::string(status.message())}});
    }
    look_at_bytes_ = std::max(kCompactAbove, 2 * logged_bytes_);
  }

  // Rewrites the log with the rows that stand, in one transaction; on an error nothing has changed.
  absl::Status Compact(const std::vector<JournalRecord>& standing, int64_t standing_bytes) {
    int64_t sequence = 0;
    uint32_t crc = 0;
    absl::Status status = Execute("BEGIN IMMEDIATE; DELETE FROM log;");
    if (status.ok()) status = Write(standing, sequence, crc);
    if (!status.ok()) {
      Execute("ROLLBACK").IgnoreError();
      return status;
    }
    LogInfo("journal_compacted", {{"before", std::to_string(sequence_)}, {"after", std::to_string(sequence)}});
    sequence_ = sequence;
    crc_ = crc;
    logged_bytes_ = standing_bytes;
    rows_ = JournalRows();
    for (size_t i = 0; i < standing.size(); ++i) rows_.Apply(static_cast<int64_t>(i) + 1, standing[i]);
    // Gives the room back; a log that keeps it is as good.
    Execute("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);").IgnoreError();
    return absl::OkStatus();
  }

  const std::string path_;
  sqlite3* db_ = nullptr;
  Statement insert_;
  Statement tip_;
  JournalRows rows_;
  int64_t sequence_ = 0;
  uint32_t crc_ = 0;
  int64_t logged_bytes_ = 0;  // of all rows in the log, also dead ones
  int64_t look_at_bytes_ = kCompactAbove;
  int64_t writes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return MakeError(v1::ERROR_REASON_STORAGE_UNWRITABLE,
                     absl::StrCat("cannot create the state directory ", directory, ": ", error.message(),
                                  "; choose a writable directory with --state-dir"),
                     {{"path", directory}, {"errno", std::to_string(error.value())}});
  }
  // SQLITE_OPEN_NOFOLLOW refuses links in the whole path, and the directory may well be reached through one.
  std::filesystem::path resolved = std::filesystem::canonical(directory, error);
  if (error) resolved = directory;
  auto journal = std::make_unique<SqliteJournal>((resolved / "journal.sqlite").string());
  ESPALIER_RETURN_IF_ERROR(journal->Init());
  return journal;
}

}  // namespace espalier
