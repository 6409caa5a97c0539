#pragma once

#include "absl/status/status.h"
#include "worker/collective/collective.h"

namespace espalier {

// Entered by all ranks, each with how its own part went. OK when all are; else every rank gets the error of the lowest
// rank that failed, with its number as metadata `rank`, so that nobody goes on alone or stays behind in a collective.
absl::Status AgreeOn(const absl::Status& mine, Collective& collective, const CollectiveTag& tag);

}  // namespace espalier
