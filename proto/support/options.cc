#include "proto/support/options.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier {

absl::Status CheckAddress(absl::string_view option, absl::string_view address, PortZero zero) {
  if (absl::StartsWith(address, "unix:") && address.size() > 5) return absl::OkStatus();
  const int least = zero == PortZero::kTakesFreePort ? 0 : 1;
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != absl::string_view::npos && colon > 0 && absl::SimpleAtoi(address.substr(colon + 1), &port) &&
      port >= least && port < 65536) {
    const absl::string_view host = address.substr(0, colon);
    const bool bracketed = host.front() == '[' && host.back() == ']';
    if (bracketed || !absl::StrContains(host, ":")) return absl::OkStatus();
  }
  return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                   absl::StrCat("--", option, ": '", address, "' is not host:port with a port of ", least,
                                " to 65535; give one such as 127.0.0.1:4770"),
                   {{"field", std::string(option)}});
}

absl::StatusOr<absl::Duration> ParseDurationOption(absl::string_view option, absl::string_view text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= absl::Milliseconds(10) && duration <= absl::Hours(24)) {
    return duration;
  }
  return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                   absl::StrCat("--", option, ": '", text, "' is not a duration of 10ms to 24h such as 15s"),
                   {{"field", std::string(option)}});
}

}  // namespace espalier
