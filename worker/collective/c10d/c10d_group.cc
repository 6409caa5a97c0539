#include "worker/collective/c10d/c10d_group.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

// LibTorch last: its headers define macros of common names.
#include <ATen/ops/from_blob.h>

namespace espalier {
namespace {

// What all ranks must agree on in one call.
struct CallRecord {
  uint64_t operation = 0;
  int64_t command_id = 0;
  int64_t sequence = 0;
  int64_t op = 0;
  int64_t size = 0;
  bool operator==(const CallRecord&) const = default;
};

at::Tensor Bytes(absl::Span<std::byte> data) {
  return at::from_blob(data.data(), {static_cast<int64_t>(data.size())}, at::kByte);
}

at::Tensor Bytes(absl::Span<const std::byte> data) {
  // from_blob has no form for bytes that are only read.
  return Bytes(absl::MakeSpan(const_cast<std::byte*>(data.data()), data.size()));
}

// One tag for all messages: the order of calls is the same on all ranks, and so is the order of messages of a pair.
constexpr int kMessageTag = 0;

}  // namespace

C10dGroup::C10dGroup(const Meeting& meeting, bool compare_tags, c10::intrusive_ptr<c10d::Backend> backend)
    : rank_(meeting.rank),
      world_size_(meeting.world_size),
      compare_tags_(compare_tags),
      deadline_(meeting.timeout),
      backend_(std::move(backend)) {}

// Waits are left to the back end, after which it touches no buffer any more; giving up earlier would leave it writing into
// memory of the caller.
template <typename Body>
absl::Status C10dGroup::Call(const CollectiveTag& tag, Op op, int64_t size, int64_t sent, Body body) {
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

absl::Status C10dGroup::Failure(const CollectiveTag& tag, absl::string_view text) const {
  if (SaysTimeout(text)) return CollectiveTimeout(tag, calls_.sequence(), deadline_, "");
  return MakeError(
      v1::ERROR_REASON_WORKER_LOST,
      absl::StrCat("collective ", calls_.sequence(), " (", tag.operation, "): a peer's connection broke: ", text),
      {{"operation", std::string(tag.operation)},
       {"command_id", absl::StrCat(tag.command_id)},
       {"sequence", absl::StrCat(calls_.sequence())}});
}

absl::Status C10dGroup::AllReduce(const CollectiveTag& tag, absl::Span<int64_t> values, ReduceOp op) {
  const auto size = static_cast<int64_t>(values.size());
  return Call(tag, Op::kAllReduce, size, size * 8, [&] {
    if (values.empty()) return;
    Reduce(values, op == ReduceOp::kSum   ? c10d::ReduceOp::SUM
                   : op == ReduceOp::kMin ? c10d::ReduceOp::MIN
                                          : c10d::ReduceOp::MAX);
  });
}

absl::Status C10dGroup::AllGather(const CollectiveTag& tag, absl::Span<const std::byte> in, absl::Span<std::byte> out) {
  const auto size = static_cast<int64_t>(in.size());
  return Call(tag, Op::kAllGather, size, size * (world_size_ - 1), [&]() -> absl::Status {
    if (out.size() != in.size() * static_cast<size_t>(world_size_)) {
      return BadBuffer(tag, "size of the output", size * world_size_, static_cast<int64_t>(out.size()));
    }
    if (!in.empty()) Gather(in, out);
    return absl::OkStatus();
  });
}

absl::Status C10dGroup::GatherTo(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                                 absl::Span<const int64_t> sizes, absl::Span<std::byte> out) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  return Call(tag, Op::kGatherTo, total, rank_ == root ? 0 : static_cast<int64_t>(in.size()),
              [&] { return Collect(tag, root, in, sizes, out); });
}

absl::Status C10dGroup::Broadcast(const CollectiveTag& tag, int root, absl::Span<std::byte> data) {
  const auto size = static_cast<int64_t>(data.size());
  return Call(tag, Op::kBroadcast, size, rank_ == root ? size : 0, [&]() -> absl::Status {
    if (root < 0 || root >= world_size_) return BadBuffer(tag, "root", 0, root);
    if (data.empty()) return absl::OkStatus();
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = ToMilliseconds(deadline_);
    at::Tensor host = Bytes(data);
    std::vector<at::Tensor> tensors = {Place(host, rank_ == root)};
    Await(*backend_->broadcast(tensors, options), Kind::kCollective, options.timeout);
    Fetch(tensors[0], host);
    return absl::OkStatus();
  });
}

// An all-reduce of one number: Gloo's own barrier is a chain of as many rounds, without a deadline for each.
absl::Status C10dGroup::Barrier(const CollectiveTag& tag) {
  return Call(tag, Op::kBarrier, 0, 0, [&] {
    int64_t nothing = 0;
    Reduce(absl::MakeSpan(&nothing, 1), c10d::ReduceOp::SUM);
  });
}

void C10dGroup::Reduce(absl::Span<int64_t> values, c10d::ReduceOp op) {
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  options.timeout = ToMilliseconds(deadline_);
  at::Tensor host = at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kLong);
  std::vector<at::Tensor> tensors = {Place(host, true)};
  Await(*backend_->allreduce(tensors, options), Kind::kCollective, options.timeout);
  Fetch(tensors[0], host);
}

void C10dGroup::Gather(absl::Span<const std::byte> in, absl::Span<std::byte> out) {
  c10d::AllgatherOptions options;
  options.timeout = ToMilliseconds(deadline_);
  at::Tensor host = Bytes(out);
  at::Tensor to = Place(host, false);
  at::Tensor from = Place(Bytes(in), true);
  Await(*backend_->_allgather_base(to, from, options), Kind::kCollective, options.timeout);
  Fetch(to, host);
}

absl::Status C10dGroup::Collect(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                                absl::Span<const int64_t> sizes, absl::Span<std::byte> out) {
  if (root < 0 || root >= world_size_) return BadBuffer(tag, "root", 0, root);
  if (sizes.size() != static_cast<size_t>(world_size_)) {
    return BadBuffer(tag, "number of sizes", world_size_, static_cast<int64_t>(sizes.size()));
  }
  if (const int64_t mine = sizes[static_cast<size_t>(rank_)]; mine != static_cast<int64_t>(in.size())) {
    return BadBuffer(tag, "size of the contribution", mine, static_cast<int64_t>(in.size()));
  }
  const Milliseconds timeout = ToMilliseconds(deadline_);
  if (rank_ != root) {
    if (in.empty()) return absl::OkStatus();
    std::vector<at::Tensor> tensors = {Place(Bytes(in), true)};
    Await(*backend_->send(tensors, root, kMessageTag), Kind::kMessage, timeout);
    return absl::OkStatus();
  }
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (static_cast<int64_t>(out.size()) != total) {
    return BadBuffer(tag, "size of the output", total, static_cast<int64_t>(out.size()));
  }
  struct Receive {
    at::Tensor host;
    std::vector<at::Tensor> placed;
    c10::intrusive_ptr<c10d::Work> work;
  };
  std::vector<Receive> receives;
  size_t offset = 0;
  for (int r = 0; r < world_size_; ++r) {
    const auto size = static_cast<size_t>(sizes[static_cast<size_t>(r)]);
    const absl::Span<std::byte> to = out.subspan(offset, size);
    offset += size;
    if (r == root) {
      std::copy(in.begin(), in.end(), to.begin());
    } else if (size != 0) {
      Receive& receive = receives.emplace_back(Receive{.host = Bytes(to)});
      receive.placed = {Place(receive.host, false)};
      receive.work = backend_->recv(receive.placed, r, kMessageTag);
    }
  }
  for (Receive& receive : receives) {
    Await(*receive.work, Kind::kMessage, timeout);
    Fetch(receive.placed[0], receive.host);
  }
  return absl::OkStatus();
}

absl::Status C10dGroup::CompareTags(const CollectiveTag& tag, Op op, int64_t size) {
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

}  // namespace espalier
