#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace espalier {

enum class ReduceOp { kSum, kMin, kMax };

// Names a call for errors and, in debug builds, for the check that all ranks entered the same one.
struct CollectiveTag {
  absl::string_view operation;  // e.g. "select"
  int64_t command_id = 0;
};

// What ranks do together. Every call is entered by all ranks of the group, in one order, by one thread; buffers are
// host memory and must have the same size on all ranks unless said. Each waits at most `deadline` inside. A failed or
// late call poisons the group: every further one fails at once with the first cause. Errors: COLLECTIVE_TIMEOUT,
// WORKER_LOST (a peer's connection broke), GENERATION_STALE (cancelled).
//
// Not thread-safe, except sequence(), in_call(), bytes_sent() and Cancel().
class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // In place.
  virtual absl::Status AllReduce(const CollectiveTag& tag, absl::Span<int64_t> values, ReduceOp op) = 0;

  // `out` is world_size times `in`, in the order of ranks.
  virtual absl::Status AllGather(const CollectiveTag& tag, absl::Span<const std::byte> in,
                                 absl::Span<std::byte> out) = 0;

  // Rank r contributes `in`, of sizes[r] bytes (also 0); on `root` `out` receives all of them one after another, and is
  // ignored elsewhere. Sizes are the same list on all ranks. The caller bounds the size.
  virtual absl::Status GatherTo(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                                absl::Span<const int64_t> sizes, absl::Span<std::byte> out) = 0;

  // In place, from `root`.
  virtual absl::Status Broadcast(const CollectiveTag& tag, int root, absl::Span<std::byte> data) = 0;

  virtual absl::Status Barrier(const CollectiveTag& tag) = 0;

  // Bounds the wait inside each following call. Default: 60 seconds.
  virtual void SetDeadline(absl::Duration deadline) = 0;

  // Number of calls entered so far, and whether the executor is inside one.
  virtual int64_t sequence() const = 0;
  virtual bool in_call() const = 0;

  // Payload bytes this rank handed to the group so far: the size of its contribution to each call, once (all-gather and
  // gather: size times the number of other ranks that receive it). 0 in a group of one.
  virtual int64_t bytes_sent() const = 0;

  // Poisons the group from another thread. Best effort: a back end without abort leaves the call only at its deadline.
  virtual void Cancel(const absl::Status& cause) = 0;
};

}  // namespace espalier
