#pragma once

#include <vector>

#include "espalier/v1/worker_service.pb.h"

namespace espalier {

// Target size of one part of a command, well under gRPC's default message limit of 4 MiB.
inline constexpr size_t kPartBytes = size_t{1} << 20;

// The parts of a long command: merged in order they are the command again. Lists are cut between their elements, so one
// element larger than kPartBytes makes a part larger than that. All else of the op is in the first part. Short commands,
// and ops that have no long lists, are one part.
std::vector<v1::Command> SplitCommand(const v1::Command& command);

}  // namespace espalier
