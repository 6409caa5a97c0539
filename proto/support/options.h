#pragma once

// Values that several programs take as options, checked alike. `option` is the name without dashes, and the metadata `field`
// of the error REQUEST_INVALID.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace espalier {

// Whether port 0 is meant: a server takes a free one, a client could reach nothing.
enum class PortZero { kRefused, kTakesFreePort };

// host:port, [v6]:port or unix:path. gRPC itself would take a port-less name for port 443, and keep 16 bits of port 99999.
absl::Status CheckAddress(absl::string_view option, absl::string_view address, PortZero zero = PortZero::kRefused);

// A duration such as 500ms, 15s or 2m, of 10ms to 24h.
absl::StatusOr<absl::Duration> ParseDurationOption(absl::string_view option, absl::string_view text);

}  // namespace espalier
