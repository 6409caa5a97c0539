#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "worker/collective/collective.h"

namespace espalier::testing {

// A group whose ranks are threads of one process, with everything the contract of Collective promises: deadlines,
// poison, tags compared on every call, bytes counted. Unlike a real back end it names the ranks that did not come.
class ThreadGroup {
 public:
  explicit ThreadGroup(int world_size);
  ~ThreadGroup();

  int world_size() const { return static_cast<int>(ranks_.size()); }
  Collective& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }

  // The same, sharing ownership: it may outlive the group object.
  std::shared_ptr<Collective> share(int r) { return ranks_[static_cast<size_t>(r)]; }

  // Calls `body` once for each rank, each in a thread of its own, and waits for all.
  void Run(const std::function<void(Collective&)>& body);

  // As if the process of `rank` had died: every call of the others, waiting or later, fails with WORKER_LOST.
  void Lose(int rank);

 private:
  class Meeting;
  class Rank;
  std::shared_ptr<Meeting> meeting_;
  std::vector<std::shared_ptr<Collective>> ranks_;
};

}  // namespace espalier::testing
