#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/collective.h"

namespace espalier {

// What each rank says to meet the others. The same on all ranks but for `rank` and what is local to its machine.
struct JoinOptions {
  int rank = 0;
  int world_size = 1;
  std::string store_address;  // host:port of the RendezvousStore of rank 0
  int64_t generation = 0;     // groups of other generations at the same store never meet
  // Where this rank listens for its peers and what it tells them: an address or host name of this machine.
  std::string bind_address = "127.0.0.1";
  std::string interface;  // a network interface instead, e.g. eth0; wins when it is given
  int gpu = 0;            // of NCCL: number of the device among those that this process sees
  // Bounds the meeting, and is the first deadline of the group.
  absl::Duration timeout = absl::Seconds(60);
  // Compares operation, command id, sequence number and size across ranks before every call, at the price of one small
  // all-gather: ranks that fall out of step get INVARIANT at once instead of each other's bytes.
#ifdef NDEBUG
  bool compare_tags = false;
#else
  bool compare_tags = true;
#endif
};

// Both join the group and prove it with a first all-reduce. Enter on all ranks at about the same time. The group waits inside
// a call at most its deadline for each message of a peer. The process ignores SIGPIPE from then on.
//
// Errors: COLLECTIVE_TIMEOUT (with the ranks that did not come, as far as the store knows), WORKER_LOST, CANNOT_BIND (no
// such address or interface here), INVARIANT (rank and world size; the self-test).

// A peer whose process ends breaks the group at once. Cancel() cannot wake a rank out of a call: Gloo has no abort.
absl::StatusOr<std::unique_ptr<Collective>> JoinGloo(const JoinOptions& options);

// Each rank on a GPU of its own; messages pass through its memory. Cancel() aborts a call. The interface is NCCL's choice where
// none is given, or that of NCCL_SOCKET_IFNAME; the address is unused. In builds with CUDA only.
absl::StatusOr<std::unique_ptr<Collective>> JoinNccl(const JoinOptions& options);

}  // namespace espalier
