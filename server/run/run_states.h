#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "espalier/v1/resources.pb.h"

namespace espalier {

// SUCCEEDED, FAILED, CANCELLED.
bool IsTerminal(v1::Run::State state);

// The table of legal transitions: QUEUED -> STARTING -> RUNNING -> SAVING -> SUCCEEDED, RUNNING -> SUCCEEDED, any live
// state -> FAILED, any live state -> CANCELLING -> CANCELLED, QUEUED -> CANCELLED. PAUSED and RECOVERING are not entered
// by this build.
bool LegalTransition(v1::Run::State from, v1::Run::State to);

// "RUNNING".
std::string StateName(v1::Run::State state);

// ILLEGAL_TRANSITION (run, state): `what` ("save") cannot be done to the run as it is; `advice` says what to do.
absl::Status IllegalFromState(const v1::Run& run, absl::string_view what, absl::string_view advice);

// Moves `run` and sets what belongs to the move: start and end time. REQUIRES: LegalTransition.
void MoveTo(v1::Run& run, v1::Run::State state, absl::string_view reason, absl::Time now);

inline constexpr char kWorkersReady[] = "WorkersReady";
inline constexpr char kMasksConsistent[] = "MasksConsistent";
inline constexpr char kMasksEffective[] = "MasksEffective";
inline constexpr char kCheckpointDurable[] = "CheckpointDurable";

// Sets a condition; its time changes only with its status.
void SetCondition(v1::Run& run, absl::string_view type, v1::Condition::Status status, absl::string_view reason,
                  absl::string_view message, absl::Time now);

google::protobuf::Timestamp ToTimestamp(absl::Time time);

}  // namespace espalier
