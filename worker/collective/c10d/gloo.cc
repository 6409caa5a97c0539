// Both classes stand in one file because LibTorch's headers cost half a minute for each file that includes them.

#include "worker/collective/c10d/gloo.h"

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
#include "proto/support/broken_pipe.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/collective/c10d/rendezvous_store.h"
#include "worker/collective/call_state.h"

// LibTorch last: its headers define macros of common names.
#include <ATen/ops/from_blob.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace espalier {
namespace {

using Milliseconds = std::chrono::milliseconds;

// LibTorch takes zero for "for ever".
Milliseconds ToMilliseconds(absl::Duration duration) {
  return Milliseconds(std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 1, int64_t{24} * 3600 * 1000));
}

// The first line, since LibTorch appends a back trace, without Gloo's place in its own sources and without its emoji.
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

// What all ranks must agree on in one call.
struct CallRecord {
  uint64_t operation = 0;
  int64_t command_id = 0;
  int64_t sequence = 0;
  int64_t op = 0;
  int64_t size = 0;
  bool operator==(const CallRecord&) const = default;
};

enum class Op : int64_t { kAllReduce, kAllGather, kGatherTo, kBroadcast, kBarrier };

class GlooGroup final : public Collective {
 public:
  GlooGroup(const GlooOptions& options, c10::intrusive_ptr<c10d::ProcessGroupGloo> group)
      : rank_(options.rank),
        world_size_(options.world_size),
        compare_tags_(options.compare_tags),
        deadline_(options.timeout),
        group_(std::move(group)) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  absl::Status AllReduce(const CollectiveTag& tag, absl::Span<int64_t> values, ReduceOp op) override {
    const auto size = static_cast<int64_t>(values.size());
    return Call(tag, Op::kAllReduce, size, size * 8, [&] {
      if (values.empty()) return;
      c10d::AllreduceOptions options;
      options.reduceOp = op == ReduceOp::kSum   ? c10d::ReduceOp::SUM
                         : op == ReduceOp::kMin ? c10d::ReduceOp::MIN
                                                : c10d::ReduceOp::MAX;
      options.timeout = ToMilliseconds(deadline_);
      std::vector<at::Tensor> tensors = {at::from_blob(values.data(), {size}, at::kLong)};
      group_->allreduce(tensors, options)->wait();
    });
  }

  absl::Status AllGather(const CollectiveTag& tag, absl::Span<const std::byte> in, absl::Span<std::byte> out) override {
    const auto size = static_cast<int64_t>(in.size());
    return Call(tag, Op::kAllGather, size, size * (world_size_ - 1), [&]() -> absl::Status {
      if (out.size() != in.size() * static_cast<size_t>(world_size_)) {
        return BadBuffer(tag, "size of the output", size * world_size_, static_cast<int64_t>(out.size()));
      }
      if (!in.empty()) Gather(in, out);
      return absl::OkStatus();
    });
  }

  absl::Status GatherTo(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                        absl::Span<const int64_t> sizes, absl::Span<std::byte> out) override {
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    return Call(tag, Op::kGatherTo, total, rank_ == root ? 0 : static_cast<int64_t>(in.size()),
                [&] { return Collect(tag, root, in, sizes, total, out); });
  }

  absl::Status Broadcast(const CollectiveTag& tag, int root, absl::Span<std::byte> data) override {
    const auto size = static_cast<int64_t>(data.size());
    return Call(tag, Op::kBroadcast, size, rank_ == root ? size : 0, [&]() -> absl::Status {
      if (root < 0 || root >= world_size_) return BadBuffer(tag, "root", 0, root);
      if (data.empty()) return absl::OkStatus();
      c10d::BroadcastOptions options;
      options.rootRank = root;
      options.timeout = ToMilliseconds(deadline_);
      std::vector<at::Tensor> tensors = {Bytes(data)};
      group_->broadcast(tensors, options)->wait();
      return absl::OkStatus();
    });
  }

  // An all-reduce of one number: Gloo's own barrier is a chain of as many rounds, without a deadline for each.
  absl::Status Barrier(const CollectiveTag& tag) override {
    return Call(tag, Op::kBarrier, 0, 0, [&] {
      int64_t nothing = 0;
      c10d::AllreduceOptions options;
      options.timeout = ToMilliseconds(deadline_);
      std::vector<at::Tensor> tensors = {at::from_blob(&nothing, {1}, at::kLong)};
      group_->allreduce(tensors, options)->wait();
    });
  }

  void SetDeadline(absl::Duration deadline) override { deadline_ = deadline; }
  int64_t sequence() const override { return calls_.sequence(); }
  bool in_call() const override { return calls_.in_call(); }
  int64_t bytes_sent() const override { return calls_.bytes_sent(); }
  void Cancel(const absl::Status& cause) override { calls_.Poison(cause); }

 private:
  static at::Tensor Bytes(absl::Span<std::byte> data) {
    return at::from_blob(data.data(), {static_cast<int64_t>(data.size())}, at::kByte);
  }
  static at::Tensor Bytes(absl::Span<const std::byte> data) {
    // from_blob has no form for bytes that are only read.
    return Bytes(absl::MakeSpan(const_cast<std::byte*>(data.data()), data.size()));
  }

  // Every call of LibTorch is made here, so that no exception leaves this file. Waits are left to Gloo's own time-out,
  // after which it touches no buffer any more; giving up earlier would leave it writing into memory of the caller.
  template <typename Body>
  absl::Status Call(const CollectiveTag& tag, Op op, int64_t size, int64_t sent, Body body) {
    ESPALIER_RETURN_IF_ERROR(calls_.Enter());
    absl::Status result;
    try {
      if (compare_tags_) result = CompareTags(tag, op, size);
      if (result.ok()) {
        if constexpr (std::is_void_v<decltype(body())>) {
          body();
        } else {
          result = body();
        }
      }
    } catch (const std::exception& error) {
      result = Failure(tag, FirstLine(error));
    } catch (...) {
      result = Failure(tag, "unknown exception");
    }
    return calls_.Leave(result, sent);
  }

  absl::Status Failure(const CollectiveTag& tag, absl::string_view text) const {
    if (SaysTimeout(text)) return CollectiveTimeout(tag, calls_.sequence(), deadline_, "");
    return MakeError(
        v1::ERROR_REASON_WORKER_LOST,
        absl::StrCat("collective ", calls_.sequence(), " (", tag.operation, "): a peer's connection broke: ", text),
        {{"operation", std::string(tag.operation)},
         {"command_id", absl::StrCat(tag.command_id)},
         {"sequence", absl::StrCat(calls_.sequence())}});
  }

  void Gather(absl::Span<const std::byte> in, absl::Span<std::byte> out) {
    c10d::AllgatherOptions options;
    options.timeout = ToMilliseconds(deadline_);
    at::Tensor to = Bytes(out);
    at::Tensor from = Bytes(in);
    group_->_allgather_base(to, from, options)->wait();
  }

  absl::Status Collect(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                       absl::Span<const int64_t> sizes, int64_t total, absl::Span<std::byte> out) {
    if (root < 0 || root >= world_size_) return BadBuffer(tag, "root", 0, root);
    if (sizes.size() != static_cast<size_t>(world_size_)) {
      return BadBuffer(tag, "number of sizes", world_size_, static_cast<int64_t>(sizes.size()));
    }
    if (const int64_t mine = sizes[static_cast<size_t>(rank_)]; mine != static_cast<int64_t>(in.size())) {
      return BadBuffer(tag, "size of the contribution", mine, static_cast<int64_t>(in.size()));
    }
    const Milliseconds timeout = ToMilliseconds(deadline_);
    // One tag for all: the order of calls is the same on all ranks, and so is the order of messages of a pair.
    constexpr int kMessageTag = 0;
    if (rank_ != root) {
      if (in.empty()) return absl::OkStatus();
      std::vector<at::Tensor> tensors = {Bytes(in)};
      group_->send(tensors, root, kMessageTag)->wait(timeout);
      return absl::OkStatus();
    }
    if (static_cast<int64_t>(out.size()) != total) {
      return BadBuffer(tag, "size of the output", total, static_cast<int64_t>(out.size()));
    }
    std::vector<c10::intrusive_ptr<c10d::Work>> receives;
    size_t offset = 0;
    for (int r = 0; r < world_size_; ++r) {
      const auto size = static_cast<size_t>(sizes[static_cast<size_t>(r)]);
      const absl::Span<std::byte> to = out.subspan(offset, size);
      offset += size;
      if (r == root) {
        std::copy(in.begin(), in.end(), to.begin());
      } else if (size != 0) {
        std::vector<at::Tensor> tensors = {Bytes(to)};
        receives.push_back(group_->recv(tensors, r, kMessageTag));
      }
    }
    for (const auto& receive : receives) receive->wait(timeout);
    return absl::OkStatus();
  }

  absl::Status CompareTags(const CollectiveTag& tag, Op op, int64_t size) {
    CallRecord mine{0xcbf29ce484222325, tag.command_id, calls_.sequence(), static_cast<int64_t>(op), size};
    for (const char c : tag.operation) mine.operation = (mine.operation ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    std::vector<CallRecord> all(static_cast<size_t>(world_size_));
    const absl::Span<std::byte> out(reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(CallRecord));
    Gather(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&mine), sizeof(mine)), out);
    for (size_t r = 0; r < all.size(); ++r) {
      if (all[r] == mine) continue;
      return MakeError(v1::ERROR_REASON_INVARIANT,
                       absl::StrCat("ranks entered different collectives: rank ", rank_, " ", tag.operation,
                                    " of command ", tag.command_id, ", op ", mine.op, ", sequence ", mine.sequence,
                                    ", size ", size, "; rank ", r, " command ", all[r].command_id, ", op ", all[r].op,
                                    ", sequence ", all[r].sequence, ", size ", all[r].size),
                       {{"what", "tags differ"}, {"where", std::string(tag.operation)}});
    }
    return absl::OkStatus();
  }

  const int rank_;
  const int world_size_;
  const bool compare_tags_;
  absl::Duration deadline_;
  const c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  CallState calls_;
};

constexpr char kJoin[] = "join";

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

absl::Status CannotJoin(const GlooOptions& options, absl::string_view why, const std::string& missing) {
  Metadata metadata = {{"operation", kJoin}, {"address", options.store_address}};
  if (!missing.empty()) metadata["ranks"] = missing;
  return MakeError(SaysTimeout(why) ? v1::ERROR_REASON_COLLECTIVE_TIMEOUT : v1::ERROR_REASON_WORKER_LOST,
                   absl::StrCat("rank ", options.rank, " of ", options.world_size, " cannot join the group at ",
                                options.store_address, missing.empty() ? "" : ", without rank ", missing, ": ", why),
                   metadata);
}

// A sum that is only right when every rank was heard exactly once.
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

}  // namespace

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

absl::StatusOr<std::unique_ptr<Collective>> JoinGloo(const GlooOptions& options) {
  const size_t colon = options.store_address.rfind(':');
  uint32_t port = 0;
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size || colon == std::string::npos ||
      !absl::SimpleAtoi(options.store_address.substr(colon + 1), &port) || port == 0 || port > 65535) {
    return MakeError(
        v1::ERROR_REASON_INVARIANT,
        absl::StrCat("no group: rank ", options.rank, " of ", options.world_size, " at store ", options.store_address),
        {{"what", "rank or store address"}, {"where", kJoin}});
  }
  const Milliseconds timeout = ToMilliseconds(options.timeout);
  // Gloo writes without MSG_NOSIGNAL: whoever sends before Gloo's own thread has read that the peer is gone would die of it.
  IgnoreBrokenPipes();

  std::shared_ptr<::gloo::transport::Device> device;
  try {
    device = options.interface.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(options.bind_address)
                                       : c10d::ProcessGroupGloo::createDeviceForInterface(options.interface);
  } catch (const std::exception& error) {
    return CannotBind(options.interface.empty() ? options.bind_address : options.interface, FirstLine(error));
  }

  c10::intrusive_ptr<c10d::Store> store;
  try {
    c10d::TCPStoreOptions dial;
    dial.port = static_cast<uint16_t>(port);
    dial.waitWorkers = false;
    dial.timeout = timeout;
    store = c10::make_intrusive<c10d::PrefixStore>(
        absl::StrCat("generation/", options.generation),
        c10::make_intrusive<c10d::TCPStore>(options.store_address.substr(0, colon), dial));
    store->set(ArrivalKey(options.rank), "");
    auto settings = c10d::ProcessGroupGloo::Options::create(timeout);
    settings->devices.push_back(device);
    settings->threads = 1;  // one executor, one call at a time
    auto group = std::make_unique<GlooGroup>(
        options, c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.world_size, settings));
    ESPALIER_RETURN_IF_ERROR(SelfTest(*group));
    return group;
  } catch (const std::exception& error) {
    return CannotJoin(options, FirstLine(error), store == nullptr ? "" : MissingRanks(*store, options.world_size));
  }
}

}  // namespace espalier
