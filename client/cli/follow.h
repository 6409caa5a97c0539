#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/lib/client.h"

namespace espalier::cli {

// Shows the progress of a run on standard error until it has ended; the run as it then is. Errors are those of the watch,
// not of the run (see OutcomeOf). With `finishing` it also ends where the run is held again, with its error.
absl::StatusOr<v1::Run> FollowRun(Client& client, const std::string& name, bool finishing = false);

// The same for an operation of a run: runs/{run}/operations/{operation}. The error of a run that ended before it.
absl::StatusOr<v1::Operation> FollowOperation(Client& client, const v1::Operation& operation);

}  // namespace espalier::cli
