#pragma once

#include "worker/collective/call_state.h"
#include "worker/collective/collective.h"

namespace espalier {

// A group of one: nothing waits, nothing is sent.
class SingleProcess final : public Collective {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  absl::Status AllReduce(const CollectiveTag& tag, absl::Span<int64_t> values, ReduceOp op) override;
  absl::Status AllGather(const CollectiveTag& tag, absl::Span<const std::byte> in, absl::Span<std::byte> out) override;
  absl::Status GatherTo(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                        absl::Span<const int64_t> sizes, absl::Span<std::byte> out) override;
  absl::Status Broadcast(const CollectiveTag& tag, int root, absl::Span<std::byte> data) override;
  absl::Status Barrier(const CollectiveTag& tag) override;
  void SetDeadline(absl::Duration) override {}
  int64_t sequence() const override { return calls_.sequence(); }
  bool in_call() const override { return calls_.in_call(); }
  int64_t bytes_sent() const override { return 0; }
  void Cancel(const absl::Status& cause) override { calls_.Poison(cause); }

 private:
  // Copies `in` to `out`, which must be as large.
  absl::Status Copy(const CollectiveTag& tag, absl::Span<const std::byte> in, absl::Span<std::byte> out);

  CallState calls_;
};

}  // namespace espalier
