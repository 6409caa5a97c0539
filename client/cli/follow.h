#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/lib/client.h"

namespace espalier::cli {

// How far a run is followed: until it has ended, or, whichever is first,
enum class Until {
  kEnded,
  kHeld,       // it is held for the first time
  kHeldAgain,  // its finish has failed, and it is held with that error
};

// Shows the progress of a run on standard error so far; the run as it then is. Errors are those of the watch, not of the
// run (see OutcomeOf).
absl::StatusOr<v1::Run> FollowRun(Client& client, const std::string& name, Until until);

// The same for an operation of a run: runs/{run}/operations/{operation}. The error of a run that ended before it.
absl::StatusOr<v1::Operation> FollowOperation(Client& client, const v1::Operation& operation);

}  // namespace espalier::cli
