#include "worker/collective/single_process.h"

#include <algorithm>

#include "proto/support/status_macros.h"

namespace espalier {

absl::Status SingleProcess::AllReduce(const CollectiveTag&, absl::Span<int64_t>, ReduceOp) {
  ESPALIER_RETURN_IF_ERROR(calls_.Enter());
  return calls_.Leave(absl::OkStatus(), 0);
}

absl::Status SingleProcess::AllGather(const CollectiveTag& tag, absl::Span<const std::byte> in,
                                      absl::Span<std::byte> out) {
  ESPALIER_RETURN_IF_ERROR(calls_.Enter());
  return calls_.Leave(Copy(tag, in, out), 0);
}

absl::Status SingleProcess::GatherTo(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                                     absl::Span<const int64_t> sizes, absl::Span<std::byte> out) {
  ESPALIER_RETURN_IF_ERROR(calls_.Enter());
  absl::Status result;
  if (root != 0) result = BadBuffer(tag, "root", 0, root);
  if (sizes.size() != 1) {
    result = BadBuffer(tag, "number of sizes", 1, static_cast<int64_t>(sizes.size()));
  } else if (sizes[0] != static_cast<int64_t>(in.size())) {
    result = BadBuffer(tag, "size of the contribution", sizes[0], static_cast<int64_t>(in.size()));
  }
  return calls_.Leave(result.ok() ? Copy(tag, in, out) : result, 0);
}

absl::Status SingleProcess::Broadcast(const CollectiveTag& tag, int root, absl::Span<std::byte>) {
  ESPALIER_RETURN_IF_ERROR(calls_.Enter());
  return calls_.Leave(root == 0 ? absl::OkStatus() : BadBuffer(tag, "root", 0, root), 0);
}

absl::Status SingleProcess::Barrier(const CollectiveTag&) {
  ESPALIER_RETURN_IF_ERROR(calls_.Enter());
  return calls_.Leave(absl::OkStatus(), 0);
}

absl::Status SingleProcess::Copy(const CollectiveTag& tag, absl::Span<const std::byte> in, absl::Span<std::byte> out) {
  if (in.size() != out.size()) {
    return BadBuffer(tag, "size of the output", static_cast<int64_t>(in.size()), static_cast<int64_t>(out.size()));
  }
  std::copy(in.begin(), in.end(), out.begin());
  return absl::OkStatus();
}

}  // namespace espalier
