#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace espalier {

// The key-value server at which the ranks of a group meet: lives in the process of rank 0 for as long as the group, on a
// port that the system chose.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;

  // Listens on `bind_address`, an IPv4 address of this machine that the other ranks can reach. CANNOT_BIND.
  static absl::StatusOr<std::unique_ptr<RendezvousStore>> Open(const std::string& bind_address = "127.0.0.1");

  // host:port that the other ranks dial.
  virtual std::string address() const = 0;
};

}  // namespace espalier
