#include "worker/collective/call_state.h"

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier {

absl::Status CallState::Enter() {
  absl::Status cause = this->cause();
  if (!cause.ok()) return cause;
  ++sequence_;
  in_call_ = true;
  return absl::OkStatus();
}

absl::Status CallState::Leave(const absl::Status& result, int64_t sent) {
  in_call_ = false;
  if (!result.ok()) Poison(result);
  absl::Status cause = this->cause();
  if (cause.ok()) bytes_sent_ += sent;
  return cause;
}

void CallState::Poison(const absl::Status& cause) {
  MutexLock lock(mutex_);
  if (!cause_.ok()) return;
  cause_ = !cause.ok() ? cause : MakeError(v1::ERROR_REASON_GENERATION_STALE, "the group was left");
}

absl::Status CallState::cause() const {
  MutexLock lock(mutex_);
  return cause_;
}

absl::Status BadBuffer(const CollectiveTag& tag, absl::string_view what, int64_t want, int64_t got) {
  return MakeError(v1::ERROR_REASON_INVARIANT,
                   absl::StrCat("collective of ", tag.operation, ": ", what, " is ", got, ", must be ", want),
                   {{"what", std::string(what)}, {"where", std::string(tag.operation)}});
}

absl::Status CollectiveTimeout(const CollectiveTag& tag, int64_t sequence, absl::Duration deadline,
                               absl::string_view missing_ranks) {
  Metadata metadata = {{"operation", std::string(tag.operation)},
                       {"command_id", absl::StrCat(tag.command_id)},
                       {"sequence", absl::StrCat(sequence)}};
  std::string who = "other ranks";
  if (!missing_ranks.empty()) {
    metadata["ranks"] = std::string(missing_ranks);
    who = absl::StrCat("rank ", missing_ranks);
  }
  return MakeError(v1::ERROR_REASON_COLLECTIVE_TIMEOUT,
                   absl::StrCat("collective ", sequence, " (", tag.operation, "): waited ",
                                absl::FormatDuration(deadline), " for ", who),
                   metadata);
}

}  // namespace espalier
