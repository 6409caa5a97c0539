#include "worker/session/local_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier {
namespace {

absl::Status CannotBind(absl::string_view address, absl::string_view what) {
  return MakeError(v1::ERROR_REASON_CANNOT_BIND, what, {{"address", std::string(address)}});
}

std::string ToText(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return text;
}

// Sockets of this file live for one question.
class Socket {
 public:
  explicit Socket(int type) : fd_(socket(AF_INET, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// One for each IPv4 address.
struct Interface {
  std::string name;
  std::string address;
};

absl::StatusOr<std::vector<Interface>> Interfaces(absl::string_view asked) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return CannotBind(asked, absl::StrCat("getifaddrs: ", strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address;
    memcpy(&address, entry->ifa_addr, sizeof address);
    interfaces.push_back({entry->ifa_name, ToText(address)});
  }
  return interfaces;
}

// The socket API takes every kind of address as a sockaddr.
const sockaddr* Generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace

absl::StatusOr<std::string> AddressOfInterface(const std::string& interface) {
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<Interface> interfaces, Interfaces(interface));
  std::set<std::string> known;
  for (const Interface& each : interfaces) {
    if (each.name == interface) return each.address;
    known.insert(each.name);
  }
  return CannotBind(interface,
                    absl::StrCat("there is no network interface '", interface,
                                 "' with an IPv4 address; --interface takes one name of: ", JoinLimited(known, ", ")));
}

absl::StatusOr<std::string> InterfaceOfAddress(const std::string& address) {
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<Interface> interfaces, Interfaces(address));
  for (const Interface& each : interfaces) {
    if (each.address == address) return each.name;
  }
  return CannotBind(address, absl::StrCat("no network interface has the address ", address));
}

absl::Status CheckLocalAddress(const std::string& address) {
  sockaddr_in local{};
  local.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &local.sin_addr) != 1) {
    return CannotBind(address, absl::StrCat("--bind takes an IPv4 address of this machine, not '", address, "'"));
  }
  const Socket socket(SOCK_STREAM);
  if (bind(socket.fd(), Generic(local), sizeof local) != 0) {
    return CannotBind(address, absl::StrCat("cannot listen on ", address, ": ", strerror(errno),
                                            "; --bind takes an IPv4 address of this machine"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalAddressTowards(absl::string_view host_and_port) {
  const size_t colon = host_and_port.rfind(':');
  const std::string host(host_and_port.substr(0, colon));
  const auto unreachable = [&](absl::string_view what) {
    return MakeError(v1::ERROR_REASON_UNREACHABLE,
                     absl::StrCat("which address of this machine do other workers reach? ", host, ": ", what,
                                  "; set --bind or --interface"),
                     {{"address", std::string(host_and_port)}});
  };
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // Any port will do: nothing is sent.
  if (const int error = getaddrinfo(host.c_str(), "9", &hints, &found); error != 0) {
    return unreachable(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const Socket socket(SOCK_DGRAM);
  if (connect(socket.fd(), found->ai_addr, found->ai_addrlen) != 0) return unreachable(strerror(errno));
  sockaddr_in local{};
  socklen_t size = sizeof local;
  // As Generic, for writing.
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&local), &size) != 0) return unreachable(strerror(errno));
  return ToText(local);
}

}  // namespace espalier
