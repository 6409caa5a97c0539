#pragma once

#include <string>
#include <vector>

namespace espalier {

struct IdleWorker {
  std::string name;
  std::string backend;  // over which it talks to the others of a group
};

struct ClaimDecision {
  // In order of ranks; empty: wait.
  std::vector<std::string> workers;
  // Why it waits, for people: "need 4, have 3 idle".
  std::string reason;
};

// Exactly `world_size` of the idle workers, all or none: the first by name, in natural order (w2 before w10), so that
// ranks do not depend on who connected first. All have the same back end: that of the first worker that has enough companions.
// A pure function of its arguments.
ClaimDecision DecideClaim(int world_size, std::vector<IdleWorker> idle);

}  // namespace espalier
