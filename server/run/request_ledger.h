#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"
#include "server/run/records.pb.h"
#include "server/store/journal.h"

namespace espalier {

// Remembers what was answered to a request id, so that a repeat is answered alike and executed never. Only successes are
// kept: what failed changed nothing and may be tried again under the same id. Not thread-safe: the event loop owns it.
class RequestLedger {
 public:
  static constexpr absl::Duration kKept = absl::Hours(24);
  // Takes the serialized answer.
  using Reply = std::function<void(const absl::StatusOr<std::string>&)>;

  explicit RequestLedger(const Clock& clock) : clock_(clock) {}

  // Takes the rows of kind "request". JOURNAL_CORRUPT when one does not parse.
  absl::Status Load(const std::vector<JournalRecord>& rows);

  // True when the caller is to execute the request, and then to call Finish. False when `reply` has been called already,
  // or will be when the first request under this id ends. `payload`: the request without its id. An empty id is always
  // new. REQUEST_INVALID for an id that is no UUID, REQUEST_ID_REUSED for another payload or method: both by `reply`.
  bool Begin(absl::string_view method, absl::string_view id, absl::string_view payload, const Reply& reply);

  // The row that makes the answer last, to be appended with the effect. None without an id.
  std::vector<JournalRecord> Row(absl::string_view id, absl::string_view answer) const;

  // Ends a request that Begin let through; answers all who wait for it, the first `reply` included.
  void Finish(absl::string_view id, const absl::StatusOr<std::string>& answer, const Reply& reply);

  // Rows that erase what is older than 24 hours; forgets it.
  std::vector<JournalRecord> Expire();

 private:
  struct Entry {
    records::RequestRecord record;
    bool in_flight = true;
    std::vector<Reply> waiting;
  };

  const Clock& clock_;
  std::map<std::string, Entry> entries_;
};

}  // namespace espalier
