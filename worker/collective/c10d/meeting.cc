#include "worker/collective/c10d/meeting.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/collective/c10d/rendezvous_store.h"

// LibTorch last: its headers define macros of common names.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace espalier {
namespace {

constexpr char kJoin[] = "join";

class TcpRendezvousStore final : public RendezvousStore {
 public:
  TcpRendezvousStore(std::string address, c10::intrusive_ptr<c10d::TCPStore> store)
      : address_(std::move(address)), store_(std::move(store)) {}
  std::string address() const override { return address_; }

 private:
  const std::string address_;
  const c10::intrusive_ptr<c10d::TCPStore> store_;
};

// Answers a listening socket on a free port of `address`, and the port.
absl::StatusOr<std::pair<int, uint16_t>> Listen(const std::string& address) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &name.sin_addr) != 1) return CannotBind(address, "not an IPv4 address");
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof(name);
  // The socket interface takes every family of addresses behind this one type.
  auto* const generic = reinterpret_cast<sockaddr*>(&name);
  if (fd < 0 || bind(fd, generic, size) != 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, generic, &size) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return CannotBind(address, std::strerror(error));
  }
  return std::make_pair(fd, ntohs(name.sin_port));
}

std::string ArrivalKey(int rank) {
  return absl::StrCat("arrived/", rank);
}

// Ranks that the store has not seen, "1,3"; empty when it cannot be asked.
std::string MissingRanks(c10d::Store& store, int world_size) {
  std::vector<int> missing;
  try {
    for (int r = 0; r < world_size; ++r) {
      if (!store.check({ArrivalKey(r)})) missing.push_back(r);
    }
  } catch (const std::exception&) {
    return "";
  }
  return absl::StrJoin(missing, ",");
}

// Of an address that CheckMeeting has seen.
std::pair<std::string, uint16_t> HostAndPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return {};
  }
  return {std::string(address.substr(0, colon)), static_cast<uint16_t>(port)};
}

}  // namespace

std::chrono::milliseconds ToMilliseconds(absl::Duration duration) {
  return std::chrono::milliseconds(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 1, int64_t{24} * 3600 * 1000));
}

std::string FirstLine(const std::exception& error) {
  std::string text = error.what();
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) text = torch->what_without_backtrace();
  text.erase(std::min(text.find('\n'), text.size()));
  if (const size_t end = text.find("] "); text.starts_with("[/") && end != std::string::npos) text.erase(0, end + 2);
  std::erase_if(text, [](char c) { return !absl::ascii_isprint(static_cast<unsigned char>(c)); });
  return std::string(absl::StripAsciiWhitespace(text));
}

bool SaysTimeout(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  return absl::StrContains(lower, "timed out") || absl::StrContains(lower, "timeout");
}

absl::Status CannotBind(absl::string_view address, absl::string_view why) {
  return MakeError(v1::ERROR_REASON_CANNOT_BIND,
                   absl::StrCat("cannot listen for other workers on ", address, ": ", why,
                                "; give an address or interface of this machine that they can reach"),
                   {{"address", std::string(address)}});
}

absl::Status CheckMeeting(const Meeting& meeting) {
  if (meeting.world_size >= 1 && meeting.rank >= 0 && meeting.rank < meeting.world_size &&
      HostAndPort(meeting.store_address).second != 0) {
    return absl::OkStatus();
  }
  return MakeError(
      v1::ERROR_REASON_INVARIANT,
      absl::StrCat("no group: rank ", meeting.rank, " of ", meeting.world_size, " at store ", meeting.store_address),
      {{"what", "rank or store address"}, {"where", kJoin}});
}

c10::intrusive_ptr<c10d::Store> DialStore(const Meeting& meeting) {
  const auto [host, port] = HostAndPort(meeting.store_address);
  c10d::TCPStoreOptions dial;
  dial.port = port;
  dial.waitWorkers = false;
  dial.timeout = ToMilliseconds(meeting.timeout);
  auto store = c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("generation/", meeting.generation),
                                                      c10::make_intrusive<c10d::TCPStore>(host, dial));
  store->set(ArrivalKey(meeting.rank), "");
  return store;
}

void AwaitArrivals(c10d::Store& store, const Meeting& meeting) {
  std::vector<std::string> keys;
  for (int r = 0; r < meeting.world_size; ++r) keys.push_back(ArrivalKey(r));
  store.wait(keys, ToMilliseconds(meeting.timeout));
}

absl::Status CannotJoin(const Meeting& meeting, absl::string_view why, c10d::Store* store) {
  const std::string missing = store == nullptr ? "" : MissingRanks(*store, meeting.world_size);
  Metadata metadata = {{"operation", kJoin}, {"address", meeting.store_address}};
  if (!missing.empty()) metadata["ranks"] = missing;
  return MakeError(SaysTimeout(why) ? v1::ERROR_REASON_COLLECTIVE_TIMEOUT : v1::ERROR_REASON_WORKER_LOST,
                   absl::StrCat("rank ", meeting.rank, " of ", meeting.world_size, " cannot join the group at ",
                                meeting.store_address, missing.empty() ? "" : ", without rank ", missing, ": ", why),
                   metadata);
}

absl::Status SelfTest(Collective& group) {
  const int64_t world = group.world_size();
  std::vector<int64_t> values(static_cast<size_t>(world));
  values[static_cast<size_t>(group.rank())] = group.rank() + 1;
  ESPALIER_RETURN_IF_ERROR(group.AllReduce({kJoin, 0}, absl::MakeSpan(values), ReduceOp::kSum));
  for (int64_t r = 0; r < world; ++r) {
    if (values[static_cast<size_t>(r)] == r + 1) continue;
    return MakeError(v1::ERROR_REASON_INVARIANT,
                     absl::StrCat("the self-test of the group failed: rank ", r, " was heard as ",
                                  values[static_cast<size_t>(r)] - 1),
                     {{"what", "self-test"}, {"where", kJoin}});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RendezvousStore>> RendezvousStore::Open(const std::string& bind_address) {
  ESPALIER_ASSIGN_OR_RETURN(const auto listening, Listen(bind_address));
  try {
    c10d::TCPStoreOptions options;
    options.port = listening.second;
    options.isServer = true;
    options.waitWorkers = false;
    options.masterListenFd = listening.first;  // the store closes it
    return std::make_unique<TcpRendezvousStore>(absl::StrCat(bind_address, ":", listening.second),
                                                c10::make_intrusive<c10d::TCPStore>(bind_address, options));
  } catch (const std::exception& error) {
    return CannotBind(bind_address, FirstLine(error));
  }
}

}  // namespace espalier
