#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier {

// The IPv4 address of a network interface. CANNOT_BIND (address), naming the interfaces there are.
absl::StatusOr<std::string> AddressOfInterface(const std::string& interface);

// The other way round. CANNOT_BIND (address).
absl::StatusOr<std::string> InterfaceOfAddress(const std::string& address);

// CANNOT_BIND unless this machine has the IPv4 address.
absl::Status CheckLocalAddress(const std::string& address);

// The IPv4 address of this machine from which host:port is reached: what other workers of the same coordinator can dial.
// Loopback only where the coordinator is on loopback, whatever the machine's name resolves to. UNREACHABLE (address) when
// the name does not resolve to an IPv4 address; says what to set.
absl::StatusOr<std::string> LocalAddressTowards(absl::string_view host_and_port);

}  // namespace espalier
