#pragma once

#include <string>

#include "absl/time/time.h"
#include "espalier/v1/resources.pb.h"

namespace espalier {

struct LeaseOptions {
  absl::Duration lease = absl::Seconds(15);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // Heartbeats missed until a worker is SUSPECT.
  int tolerated_misses = 3;
};

// What is known of one worker process. Times are of the monotonic clock: a wall clock that jumps expires no lease.
struct LeaseState {
  bool connected = false;
  // Set once, by a new incarnation or by the end of the lease.
  bool lost = false;
  std::string lost_reason;
  absl::Duration last_heard;
  // runs/{run} that claimed it, or empty.
  std::string run;
};

struct LeaseVerdict {
  v1::Worker::State state = v1::Worker::STATE_UNSPECIFIED;
  // For people; empty while nothing is wrong.
  std::string reason;
};

// Whether a worker is there: a pure function of its arguments.
//  - LOST once it was lost, or when nothing was heard for a whole lease;
//  - SUSPECT at once when its stream is closed, or after `tolerated_misses` heartbeat intervals of silence (but never
//    sooner than half a lease would allow: min of the two);
//  - else BUSY in a run, IDLE without.
LeaseVerdict DecideLease(absl::Duration now, const LeaseState& state, const LeaseOptions& options);

}  // namespace espalier
