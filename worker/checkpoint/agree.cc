#include "worker/checkpoint/agree.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "espalier/v1/errors.pb.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier {

absl::Status AgreeOn(const absl::Status& mine, Collective& collective, const CollectiveTag& tag) {
  if (collective.world_size() == 1) return mine;
  const std::string text = ToProto(mine).SerializeAsString();
  // The lowest rank that failed, and how long the longest error is.
  int64_t first = mine.ok() ? collective.world_size() : collective.rank();
  ESPALIER_RETURN_IF_ERROR(collective.AllReduce(tag, absl::MakeSpan(&first, 1), ReduceOp::kMin));
  if (first == collective.world_size()) return absl::OkStatus();
  int64_t size = mine.ok() ? 0 : static_cast<int64_t>(text.size());
  ESPALIER_RETURN_IF_ERROR(collective.AllReduce(tag, absl::MakeSpan(&size, 1), ReduceOp::kMax));
  std::string buffer(static_cast<size_t>(size), '\0');
  if (collective.rank() == first) buffer.replace(0, text.size(), text);
  // The size of the text goes first: a proto cannot tell its own end.
  int64_t length = static_cast<int64_t>(text.size());
  const int root = static_cast<int>(first);
  const auto bytes = [](auto* data, size_t n) { return absl::MakeSpan(reinterpret_cast<std::byte*>(data), n); };
  ESPALIER_RETURN_IF_ERROR(collective.Broadcast(tag, root, bytes(&length, sizeof(length))));
  ESPALIER_RETURN_IF_ERROR(collective.Broadcast(tag, root, bytes(buffer.data(), buffer.size())));
  v1::Status status;
  if (length > size || !status.ParseFromArray(buffer.data(), static_cast<int>(length))) {
    return MakeError(v1::ERROR_REASON_INVARIANT, "the error of another rank cannot be read",
                     {{"what", "status does not parse"}, {"where", "AgreeOn"}});
  }
  return Annotate(FromProto(status), "", {{"rank", absl::StrCat(first)}});
}

}  // namespace espalier
