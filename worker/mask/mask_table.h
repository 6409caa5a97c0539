#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "espalier/v1/plan.pb.h"
#include "worker/mask/bitmask.h"

namespace espalier {

// The mask of one parameter as this rank holds it.
struct ShardMask {
  std::shared_ptr<const Bitmask> bits;  // of the rank's range
  int64_t version = 0;                  // at which it was last changed
  v1::MaskStructure structure;
  int64_t planned = -1;  // |P| of the full parameter at that version; -1 for stored masks
};

// Masks of one rank by canonical name. Not thread-safe: the executor alone uses it.
using MaskTable = std::map<std::string, ShardMask, std::less<>>;

}  // namespace espalier
