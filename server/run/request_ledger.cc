#include "server/run/request_ledger.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/uuid.h"

namespace espalier {

absl::Status RequestLedger::Load(const std::vector<JournalRecord>& rows) {
  for (const JournalRecord& row : rows) {
    if (row.kind != "request") continue;
    Entry entry;
    entry.in_flight = false;
    if (!entry.record.ParseFromString(row.value)) {
      return MakeError(v1::ERROR_REASON_JOURNAL_CORRUPT, absl::StrCat("journal: request ", row.key, " does not parse"),
                       {{"what", absl::StrCat("request ", row.key)}});
    }
    entries_[row.key] = std::move(entry);
  }
  return absl::OkStatus();
}

bool RequestLedger::Begin(absl::string_view method, absl::string_view id, absl::string_view payload,
                          const Reply& reply) {
  if (id.empty()) return true;
  if (!IsUuid(id)) {
    reply(MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                    absl::StrCat("request_id '", id.substr(0, 64), "' is not a UUID; make one for each new request"),
                    {{"field", "request_id"}}));
    return false;
  }
  const auto [it, fresh] = entries_.try_emplace(absl::AsciiStrToLower(id));
  Entry& entry = it->second;
  if (fresh) {
    entry.record.set_method(std::string(method));
    entry.record.set_payload(std::string(payload));
    entry.record.set_unix_seconds(absl::ToUnixSeconds(clock_.Wall()));
    return true;
  }
  if (entry.record.method() != method || entry.record.payload() != payload) {
    reply(MakeError(v1::ERROR_REASON_REQUEST_ID_REUSED,
                    absl::StrCat("request_id ", id, " was used for another ",
                                 entry.record.method() == method ? "request" : entry.record.method(),
                                 "; make a new id for each new request"),
                    {{"request_id", std::string(id)}}));
  } else if (entry.in_flight) {
    entry.waiting.push_back(reply);
  } else {
    reply(entry.record.answer());
  }
  return false;
}

std::vector<JournalRecord> RequestLedger::Row(absl::string_view id, absl::string_view answer) const {
  if (id.empty()) return {};
  const std::string key = absl::AsciiStrToLower(id);
  records::RequestRecord record = entries_.at(key).record;
  record.set_answer(std::string(answer));
  return {{"request", "", key, record.SerializeAsString()}};
}

void RequestLedger::Finish(absl::string_view id, const absl::StatusOr<std::string>& answer, const Reply& reply) {
  std::vector<Reply> waiting;
  if (!id.empty()) {
    const auto it = entries_.find(absl::AsciiStrToLower(id));
    waiting = std::move(it->second.waiting);
    if (answer.ok()) {
      it->second.record.set_answer(*answer);
      it->second.in_flight = false;
      it->second.waiting.clear();
    } else {
      entries_.erase(it);
    }
  }
  reply(answer);
  for (const Reply& each : waiting) each(answer);
}

std::vector<JournalRecord> RequestLedger::Expire() {
  const int64_t oldest = absl::ToUnixSeconds(clock_.Wall() - kKept);
  std::vector<JournalRecord> rows;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (!it->second.in_flight && it->second.record.unix_seconds() < oldest) {
      rows.push_back({"request", "", it->first, "", /*erase=*/true});
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
  return rows;
}

}  // namespace espalier
