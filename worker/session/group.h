#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/collective.h"

namespace espalier {

struct GroupMembership {
  int rank = 0;
  int world_size = 1;
  int64_t generation = 0;
  std::string store_address;  // host:port of rank 0's store; empty in a group of one
  absl::Duration timeout;     // for the group to form
};

// Forms the groups in which ranks work together. Not thread-safe: the executor alone uses it.
class GroupFactory {
 public:
  virtual ~GroupFactory() = default;

  // Rank 0, before Join: opens the store at which the group meets and answers its host:port.
  virtual absl::StatusOr<std::string> OpenStore() = 0;

  // Waits until all ranks are there. COLLECTIVE_TIMEOUT, WORKER_LOST.
  virtual absl::StatusOr<std::shared_ptr<Collective>> Join(const GroupMembership& membership) = 0;

  // Closes the store that OpenStore opened, if there is one.
  virtual void CloseStore() = 0;
};

}  // namespace espalier
