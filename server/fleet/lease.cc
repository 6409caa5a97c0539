#include "server/fleet/lease.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace espalier {
namespace {

absl::Duration SuspectAfter(const LeaseOptions& options) {
  return std::min(options.tolerated_misses * options.heartbeat_interval, options.lease / 2);
}

}  // namespace

LeaseVerdict DecideLease(absl::Duration now, const LeaseState& state, const LeaseOptions& options) {
  const absl::Duration silent = now - state.last_heard;
  if (state.lost) return {v1::Worker::STATE_LOST, state.lost_reason};
  if (silent >= options.lease) {
    return {v1::Worker::STATE_LOST, absl::StrCat("nothing heard for the lease of ", absl::FormatDuration(options.lease),
                                                 state.connected ? ", its stream still open" : "")};
  }
  if (!state.connected) return {v1::Worker::STATE_SUSPECT, "its stream closed"};
  if (silent >= SuspectAfter(options)) return {v1::Worker::STATE_SUSPECT, "its heartbeats stopped"};
  if (!state.run.empty()) return {v1::Worker::STATE_BUSY, absl::StrCat("in ", state.run)};
  return {v1::Worker::STATE_IDLE, ""};
}

}  // namespace espalier
