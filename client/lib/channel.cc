#include "client/lib/channel.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "proto/support/errors.h"

namespace espalier {

absl::Status CheckAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:") && address.size() > 5) return absl::OkStatus();
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != absl::string_view::npos && colon > 0 && absl::SimpleAtoi(address.substr(colon + 1), &port) && port > 0 &&
      port < 65536) {
    const absl::string_view host = address.substr(0, colon);
    const bool bracketed = host.front() == '[' && host.back() == ']';
    if (bracketed || !absl::StrContains(host, ":")) return absl::OkStatus();
  }
  return MakeError(
      v1::ERROR_REASON_REQUEST_INVALID,
      absl::StrCat("coordinator address '", address, "' is not host:port; give one such as 127.0.0.1:4770"),
      {{"field", "coordinator"}});
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
}

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
      return Unreachable(address, failed ? absl::StrCat("connections fail for ", absl::FormatDuration(options.refused))
                                         : absl::StrCat("silent for ", absl::FormatDuration(options.silent)));
    }
    channel.WaitForStateChange(state, absl::ToChronoTime(limit));
  }
}

}  // namespace espalier
