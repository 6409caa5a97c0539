#include "worker/session/corrupting_collective.h"

#include <algorithm>
#include <utility>

#include "proto/support/fault_point.h"
#include "proto/support/status_macros.h"

namespace espalier {
namespace {

constexpr std::ptrdiff_t kRun = 8;

class CorruptingCollective final : public Collective {
 public:
  explicit CorruptingCollective(std::shared_ptr<Collective> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  absl::Status AllReduce(const CollectiveTag& tag, absl::Span<int64_t> values, ReduceOp op) override {
    return inner_->AllReduce(tag, values, op);
  }
  absl::Status AllGather(const CollectiveTag& tag, absl::Span<const std::byte> in, absl::Span<std::byte> out) override {
    return inner_->AllGather(tag, in, out);
  }
  absl::Status GatherTo(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                        absl::Span<const int64_t> sizes, absl::Span<std::byte> out) override {
    ESPALIER_RETURN_IF_ERROR(inner_->GatherTo(tag, root, in, sizes, out));
    if (root == rank() && !done_) Corrupt(out);
    return absl::OkStatus();
  }
  absl::Status Broadcast(const CollectiveTag& tag, int root, absl::Span<std::byte> data) override {
    return inner_->Broadcast(tag, root, data);
  }
  absl::Status Barrier(const CollectiveTag& tag) override { return inner_->Barrier(tag); }
  void SetDeadline(absl::Duration deadline) override { inner_->SetDeadline(deadline); }
  int64_t sequence() const override { return inner_->sequence(); }
  bool in_call() const override { return inner_->in_call(); }
  int64_t bytes_sent() const override { return inner_->bytes_sent(); }
  void Cancel(const absl::Status& cause) override { inner_->Cancel(cause); }

 private:
  void Corrupt(absl::Span<std::byte> chunk) {
    for (std::ptrdiff_t at = 0; at + kRun <= static_cast<std::ptrdiff_t>(chunk.size()); at += kRun) {
      const auto word = chunk.begin() + at;
      if (!std::all_of(word, word + kRun, [](std::byte b) { return b == std::byte{0}; })) continue;
      if (FaultHit("gather_chunk", rank()) != "corrupt") return;
      std::fill(word, word + kRun, std::byte{0x3F});
      done_ = true;
      return;
    }
  }

  const std::shared_ptr<Collective> inner_;
  bool done_ = false;
};

}  // namespace

std::shared_ptr<Collective> CorruptGathers(std::shared_ptr<Collective> collective) {
  return std::make_shared<CorruptingCollective>(std::move(collective));
}

}  // namespace espalier
