#pragma once

// For the files of this folder: it includes LibTorch, whose headers cost half a minute for each file that does.

#include <chrono>
#include <cstdint>
#include <vector>

#include "worker/collective/c10d/meeting.h"
#include "worker/collective/call_state.h"
#include "worker/collective/collective.h"

// LibTorch last: its headers define macros of common names.
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace espalier {

// A group over one of c10d's back ends. No exception of LibTorch leaves it. What differs between back ends is where a message
// lies while it is sent and how the end of a call is awaited.
class C10dGroup : public Collective {
 public:
  // `compare_tags`: see JoinOptions.
  C10dGroup(const Meeting& meeting, bool compare_tags, c10::intrusive_ptr<c10d::Backend> backend);

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  absl::Status AllReduce(const CollectiveTag& tag, absl::Span<int64_t> values, ReduceOp op) override;
  absl::Status AllGather(const CollectiveTag& tag, absl::Span<const std::byte> in, absl::Span<std::byte> out) override;
  absl::Status GatherTo(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                        absl::Span<const int64_t> sizes, absl::Span<std::byte> out) override;
  absl::Status Broadcast(const CollectiveTag& tag, int root, absl::Span<std::byte> data) override;
  absl::Status Barrier(const CollectiveTag& tag) override;
  void SetDeadline(absl::Duration deadline) override { deadline_ = deadline; }
  int64_t sequence() const override { return calls_.sequence(); }
  bool in_call() const override { return calls_.in_call(); }
  int64_t bytes_sent() const override { return calls_.bytes_sent(); }
  void Cancel(const absl::Status& cause) override { calls_.Poison(cause); }

 protected:
  using Milliseconds = std::chrono::milliseconds;

  // A tensor that the back end takes, for one in host memory: itself where the back end reads host memory. `filled`: with
  // the same contents; otherwise it is about to be written.
  virtual at::Tensor Place(const at::Tensor& host, bool filled) = 0;
  // Puts what the back end wrote to a tensor of Place into the host's.
  virtual void Fetch(const at::Tensor& placed, at::Tensor& host) = 0;
  // Returns when the back end touches no buffer of the call any more. Throws; of a time-out, a text that says so.
  enum class Kind { kCollective, kMessage };
  virtual void Await(c10d::Work& work, Kind kind, Milliseconds timeout) = 0;

 private:
  enum class Op : int64_t { kAllReduce, kAllGather, kGatherTo, kBroadcast, kBarrier };

  // Makes every call of LibTorch, so that no exception leaves this class.
  template <typename Body>
  absl::Status Call(const CollectiveTag& tag, Op op, int64_t size, int64_t sent, Body body);
  absl::Status Failure(const CollectiveTag& tag, absl::string_view text) const;
  absl::Status CompareTags(const CollectiveTag& tag, Op op, int64_t size);
  void Reduce(absl::Span<int64_t> values, c10d::ReduceOp op);
  void Gather(absl::Span<const std::byte> in, absl::Span<std::byte> out);
  absl::Status Collect(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                       absl::Span<const int64_t> sizes, absl::Span<std::byte> out);

  const int rank_;
  const int world_size_;
  const bool compare_tags_;
  absl::Duration deadline_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  CallState calls_;
};

}  // namespace espalier
