#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace espalier {

// All functions are thread-safe.

// How long to wait for a connection. Refused connections are tried again, so that a quick restart goes unnoticed, but not
// for as long as silent ones.
struct ConnectOptions {
  absl::Duration silent = absl::Seconds(5);
  absl::Duration refused = absl::Seconds(1);
};

// Waits until the channel is connected. UNREACHABLE (address) otherwise, in at most `silent`; the message says what to do.
absl::Status WaitConnected(grpc::Channel& channel, const std::string& address, const ConnectOptions& options);

// The error of an address that does not answer: UNREACHABLE (address).
absl::Status Unreachable(absl::string_view address, absl::string_view what);

}  // namespace espalier
