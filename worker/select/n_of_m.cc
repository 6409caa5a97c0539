#include <algorithm>
#include <cstring>

#include "proto/support/status_macros.h"
#include "worker/mask/kernels.h"
#include "worker/select/groups.h"
#include "worker/select/update.h"

namespace espalier {
namespace {

// The incomplete blocks at the two ends of a range. A range inside one block is all head.
struct Edges {
  ShardRange head;
  ShardRange tail;
};

Edges EdgesOf(const GroupLayout& layout, ShardRange range) {
  const int64_t block = layout.block();
  const int64_t first_whole = (range.begin + block - 1) / block * block;
  const int64_t last_whole = range.end / block * block;
  Edges edges{{range.begin, std::min(range.end, first_whole)}, {std::max(range.begin, last_whole), range.end}};
  if (first_whole > last_whole) edges.tail = {range.end, range.end};
  return edges;
}

// Prunes in the blocks that lie on several ranks: every rank tells the keys of its edges to all, and each rank that has
// a part of a block decides the whole of it, all alike.
absl::Status PruneCutBlocks(const Update& update, size_t i, const GroupLayout& layout, Bitmask& mask) {
  const auto block = static_cast<size_t>(layout.block());
  const ShardRange range = update.inputs[i].range;
  // begin and end of the range, then the keys of its head and of its tail.
  const size_t record = 2 + 2 * block;
  std::vector<uint64_t> mine(record);
  mine[0] = static_cast<uint64_t>(range.begin);
  mine[1] = static_cast<uint64_t>(range.end);
  const Edges own = EdgesOf(layout, range);
  const auto put = [&](ShardRange edge, size_t at) {
    for (int64_t e = edge.begin; e < edge.end; ++e) {
      mine[at++] = GroupKey(update.Values(i), update.First(i), e - range.begin);
    }
  };
  put(own.head, 2);
  put(own.tail, 2 + block);
  std::vector<uint64_t> all(record * static_cast<size_t>(update.collective.world_size()));
  // Keys travel as the bytes that they are: all ranks of a group have one byte order.
  ESPALIER_RETURN_IF_ERROR(update.collective.AllGather(
      update.tag, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(mine.data()), record * sizeof(uint64_t)),
      absl::MakeSpan(reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(uint64_t))));

  std::vector<uint64_t> keys(block);
  std::vector<uint8_t> pruned(block);
  for (const ShardRange& part : {own.head, own.tail}) {
    if (part.empty()) continue;
    const int64_t begin = part.begin / layout.block() * layout.block();
    const int64_t end = begin + layout.block();
    for (size_t at = 0; at < all.size(); at += record) {
      const ShardRange other{static_cast<int64_t>(all[at]), static_cast<int64_t>(all[at + 1])};
      const Edges edges = EdgesOf(layout, other);
      for (const auto& [edge, from] : {std::pair{edges.head, at + 2}, std::pair{edges.tail, at + 2 + block}}) {
        for (int64_t e = std::max(edge.begin, begin); e < std::min(edge.end, end); ++e) {
          keys[static_cast<size_t>(e - begin)] = all[from + static_cast<size_t>(e - edge.begin)];
        }
      }
    }
    PruneBlock(layout, keys, absl::MakeSpan(pruned));
    for (int64_t e = part.begin; e < part.end; ++e) {
      if (pruned[static_cast<size_t>(e - begin)] != 0) mask.Set(e - range.begin, false);
    }
  }
  return absl::OkStatus();
}

int64_t PrunedNans(const Magnitudes& values, const Bitmask* first, const Bitmask& mask) {
  if (CountNans(values.dtype, values.bytes) == 0) return 0;
  int64_t nans = 0;
  for (int64_t i = 0; i < mask.size(); ++i) {
    nans += !mask.Keeps(i) && GroupKey(values, first, i) == values.format().nan + 1;
  }
  return nans;
}

}  // namespace

absl::StatusOr<Bitmask> MaskNOfM(const Update& update, size_t i, bool cut) {
  const SelectInput& input = update.inputs[i];
  ESPALIER_ASSIGN_OR_RETURN(const GroupLayout layout, GroupLayoutOf(*input.parameter, update.spec.structure()));
  Bitmask mask(input.range.size());
  PruneWholeBlocks(layout, update.Values(i), update.First(i), input.range, mask);
  if (cut) ESPALIER_RETURN_IF_ERROR(PruneCutBlocks(update, i, layout, mask));
  return mask;
}

absl::StatusOr<Selection> SelectNOfM(const Update& update, absl::Span<const int64_t> cut) {
  Selection selection;
  for (size_t i = 0; i < update.inputs.size(); ++i) {
    ESPALIER_ASSIGN_OR_RETURN(Bitmask mask, MaskNOfM(update, i, cut[i] != 0));
    selection.pruned_nans += PrunedNans(update.Values(i), update.First(i), mask);
    selection.masks.push_back(std::move(mask));
  }
  ESPALIER_RETURN_IF_ERROR(FinishByCounting(update, selection));
  return selection;
}

}  // namespace espalier
