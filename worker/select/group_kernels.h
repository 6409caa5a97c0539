#pragma once

#include "worker/mask/bitmask.h"
#include "worker/select/magnitude.h"

namespace espalier {

// N:M along rows for the group sizes that vectors hold: prunes in the groups of the first `count` elements, a multiple of
// `m`, and leaves the others of the mask as they are. False, and nothing done, for other sizes and as_f64.
bool PruneGroupsByVectors(const Magnitudes& values, int64_t n, int64_t m, const Bitmask* first, int64_t count,
                          Bitmask& mask);

}  // namespace espalier
