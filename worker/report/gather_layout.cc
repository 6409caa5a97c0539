#include "worker/report/gather_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

// What a rank tells the others of a parameter.
struct Held {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t masked = 0;  // 1: it holds a mask
};

// Integers travel as bytes; every object may be looked at as std::byte.
template <class T>
absl::Span<const std::byte> AsBytes(const std::vector<T>& items) {
  return {reinterpret_cast<const std::byte*>(items.data()), items.size() * sizeof(T)};
}
template <class T>
absl::Span<std::byte> AsWritableBytes(std::vector<T>& items) {
  return {reinterpret_cast<std::byte*>(items.data()), items.size() * sizeof(T)};
}

int64_t WordBytes(int64_t elements) {
  return (elements + 63) / 64 * 8;
}

// All ranks' shares of one parameter; they stand in `held` from `first` on, `stride` apart.
absl::StatusOr<GatherParts> PartsOf(const v1::Parameter& parameter, absl::Span<const Held> held, size_t first,
                                    size_t stride) {
  GatherParts parts;
  int64_t at = 0;
  for (size_t i = first; i < held.size(); i += stride) {
    const auto [begin, end, masked] = held[i];
    if (begin != at || end < begin) break;
    at = end;
    parts.value_bytes.push_back((end - begin) * DtypeSize(parameter.dtype()));
    parts.masked_elements.push_back(masked != 0 ? end - begin : 0);
    parts.mask_bytes.push_back(WordBytes(parts.masked_elements.back()));
    parts.value_bytes_total += parts.value_bytes.back();
    parts.mask_bytes_total += parts.mask_bytes.back();
  }
  if (at != NumElements(parameter.shape())) {
    return MakeError(
        v1::ERROR_REASON_INVARIANT,
        absl::StrCat("the ranks' ranges of ", parameter.name(), " leave a gap or overlap after element ", at),
        {{"what", "ranges do not tile " + parameter.name()}, {"where", "GatherLayout"}});
  }
  return parts;
}

// The same verdict on all ranks: OK where every rank's `own` is.
absl::Status ExchangeStatus(Collective& collective, const CollectiveTag& tag, const absl::Status& own) {
  std::vector<int64_t> failed = {own.ok() ? 0 : 1};
  ESPALIER_RETURN_IF_ERROR(collective.AllReduce(tag, absl::MakeSpan(failed), ReduceOp::kMax));
  if (!own.ok() || failed[0] == 0) return own;
  return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED, "the last rank has no memory for the largest parameter",
                   {{"limit", "memory"}});
}

}  // namespace

absl::StatusOr<GatherLayout> GatherLayout::Agree(const ShardTable& shards, const MaskTable& masks,
                                                 Collective& collective, int64_t command_id,
                                                 std::shared_ptr<Storage>& buffer) {
  const CollectiveTag tag{"report", command_id};
  const size_t ranks = static_cast<size_t>(collective.world_size());
  const size_t count = shards.names().size();
  std::vector<Held> mine;
  std::vector<const v1::Parameter*> parameters;
  for (const std::string& name : shards.names()) {
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(name));
    const auto mask = masks.find(name);
    const bool masked = mask != masks.end() && mask->second.bits != nullptr;
    mine.push_back({shard.range.begin, shard.range.end, masked ? 1 : 0});
    parameters.push_back(shard.parameter);
  }
  std::vector<Held> all(count * ranks);
  ESPALIER_RETURN_IF_ERROR(collective.AllGather(tag, AsBytes(mine), AsWritableBytes(all)));

  GatherLayout layout;
  int64_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    ESPALIER_ASSIGN_OR_RETURN(GatherParts parts, PartsOf(*parameters[i], all, i, count));
    largest = std::max({largest, parts.value_bytes_total, parts.mask_bytes_total});
    layout.parts_.push_back(std::move(parts));
  }
  absl::Status status;
  if (collective.rank() == collective.world_size() - 1) {
    if (auto room = Storage::Allocate(largest); room.ok()) {
      buffer = *std::move(room);
    } else {
      status = room.status();
    }
  }
  ESPALIER_RETURN_IF_ERROR(ExchangeStatus(collective, tag, status));
  return layout;
}

}  // namespace espalier
