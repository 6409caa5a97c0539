#include "client/lib/connect.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/errors.h"

namespace espalier {

absl::Status Unreachable(absl::string_view address, absl::string_view what) {
  return MakeError(v1::ERROR_REASON_UNREACHABLE,
                   absl::StrCat("no coordinator answers at ", address, " (", what,
                                "); start espalier-coordinator there, or name another with --coordinator or "
                                "ESPALIER_COORDINATOR"),
                   {{"address", std::string(address)}});
}

absl::Status WaitConnected(grpc::Channel& channel, const std::string& address, const ConnectOptions& options) {
  const absl::Time start = absl::Now();
  const absl::Time silent = start + options.silent;
  const absl::Time refused = start + std::min(options.refused, options.silent);
  bool failed = false;
  while (true) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
    // After the first refusal the channel alternates between waiting and connecting.
    failed = failed || state == GRPC_CHANNEL_TRANSIENT_FAILURE;
    const absl::Time limit = failed ? refused : silent;
    if (absl::Now() >= limit || state == GRPC_CHANNEL_SHUTDOWN) {
      const absl::Duration waited = absl::Trunc(absl::Now() - start, absl::Milliseconds(100));
      return Unreachable(address,
                         absl::StrCat(failed ? "connections fail for " : "silent for ", absl::FormatDuration(waited)));
    }
    channel.WaitForStateChange(state, absl::ToChronoTime(limit));
  }
}

}  // namespace espalier
