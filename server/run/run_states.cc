#include "server/run/run_states.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"

namespace espalier {

using Run = v1::Run;

bool IsTerminal(Run::State state) {
  return state == Run::STATE_SUCCEEDED || state == Run::STATE_FAILED || state == Run::STATE_CANCELLED;
}

bool LegalTransition(Run::State from, Run::State to) {
  switch (from) {
    case Run::STATE_QUEUED:
      return to == Run::STATE_STARTING || to == Run::STATE_FAILED || to == Run::STATE_CANCELLED;
    case Run::STATE_STARTING:
      return to == Run::STATE_RUNNING || to == Run::STATE_FAILED || to == Run::STATE_CANCELLING;
    case Run::STATE_RUNNING:
      return to == Run::STATE_SAVING || to == Run::STATE_SUCCEEDED || to == Run::STATE_FAILED ||
             to == Run::STATE_CANCELLING;
    case Run::STATE_SAVING:
      return to == Run::STATE_SUCCEEDED || to == Run::STATE_FAILED || to == Run::STATE_CANCELLING ||
             to == Run::STATE_RUNNING;
    case Run::STATE_CANCELLING:
      return to == Run::STATE_CANCELLED;
    default:
      return false;
  }
}

std::string StateName(Run::State state) {
  return std::string(absl::StripPrefix(Run::State_Name(state), "STATE_"));
}

absl::Status IllegalFromState(const Run& run, absl::string_view what, absl::string_view advice) {
  return MakeError(v1::ERROR_REASON_ILLEGAL_TRANSITION,
                   absl::StrCat(run.name(), " is ", StateName(run.state()), ": cannot ", what, "; ", advice),
                   {{"run", run.name()}, {"state", StateName(run.state())}});
}

void MoveTo(Run& run, Run::State state, absl::string_view reason, absl::Time now) {
  if (!LegalTransition(run.state(), state)) std::abort();
  run.set_state(state);
  run.set_state_reason(std::string(reason));
  if (state == Run::STATE_STARTING) *run.mutable_start_time() = ToTimestamp(now);
  if (IsTerminal(state)) *run.mutable_end_time() = ToTimestamp(now);
}

void SetCondition(Run& run, absl::string_view type, v1::Condition::Status status, absl::string_view reason,
                  absl::string_view message, absl::Time now) {
  v1::Condition* found = nullptr;
  for (v1::Condition& condition : *run.mutable_conditions()) {
    if (condition.type() == type) found = &condition;
  }
  if (found == nullptr) {
    found = run.add_conditions();
    found->set_type(std::string(type));
  }
  if (found->status() != status) *found->mutable_last_transition_time() = ToTimestamp(now);
  found->set_status(status);
  found->set_reason(std::string(reason));
  found->set_message(std::string(message));
}

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  return google::protobuf::util::TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(time));
}

}  // namespace espalier
