#pragma once

#include <memory>

#include "worker/collective/collective.h"

namespace espalier {

// Test builds: a group that flips bits in one chunk that GatherTo assembled, where the fault point gather_chunk is armed
// with "corrupt". The chunk is the first with eight zero bytes side by side: sparse weights have them, and a count of
// zeros cannot miss them. Everything else passes through.
std::shared_ptr<Collective> CorruptGathers(std::shared_ptr<Collective> collective);

}  // namespace espalier
