#pragma once

#include <string>
#include <vector>

namespace espalier {

struct ClaimDecision {
  // In order of ranks; empty: wait.
  std::vector<std::string> workers;
  // Why it waits, for people: "need 4, have 3 idle".
  std::string reason;
};

// Exactly `world_size` of the idle workers, all or none: the first by name, in natural order (w2 before w10), so that
// ranks do not depend on who connected first. A pure function of its arguments.
ClaimDecision DecideClaim(int world_size, std::vector<std::string> idle);

}  // namespace espalier
