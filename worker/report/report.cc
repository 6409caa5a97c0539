#include "worker/report/report.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "proto/support/status_macros.h"
#include "worker/mask/kernels.h"
#include "worker/report/gather_layout.h"

namespace espalier {
namespace {

struct Counts {
  int64_t zeros = 0;
  int64_t masked = 0;
};

// Of all parameters, in the order of their names: zeros and masked by turns, as they travel.
using CountList = std::vector<int64_t>;

const ShardMask* MaskOf(const MaskTable& masks, const std::string& name) {
  const auto it = masks.find(name);
  return it == masks.end() || it->second.bits == nullptr ? nullptr : &it->second;
}

// A look-up of its own for each parameter: what is live when it is counted.
absl::StatusOr<Counts> CountShard(const ShardTable& shards, const MaskTable& masks, const std::string& name) {
  ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(name));
  const ShardMask* mask = MaskOf(masks, name);
  return Counts{.zeros = CountZeros(shard.parameter->dtype(), shard.storage->bytes()),
                .masked = mask == nullptr ? 0 : mask->bits->CountPruned()};
}

absl::StatusOr<CountList> CountShards(const ShardTable& shards, const MaskTable& masks, const ReportOptions& options) {
  const int64_t total = static_cast<int64_t>(shards.names().size());
  CountList counts;
  counts.reserve(2 * shards.names().size());
  for (const std::string& name : shards.names()) {
    ESPALIER_ASSIGN_OR_RETURN(const Counts shard, CountShard(shards, masks, name));
    counts.push_back(shard.zeros);
    counts.push_back(shard.masked);
    options.progress(static_cast<int64_t>(counts.size()) / 2, total);
  }
  return counts;
}

// `words` are the masks of some ranges one after another, each in whole words.
int64_t PrunedInWords(absl::Span<const std::byte> words, absl::Span<const int64_t> elements) {
  int64_t pruned = 0;
  for (const int64_t size : elements) {
    Bitmask part(size);
    const size_t bytes = part.words().size() * sizeof(uint64_t);
    if (bytes != 0) std::memcpy(part.words().data(), words.data(), bytes);
    words.remove_prefix(bytes);
    pruned += part.CountPruned();
  }
  return pruned;
}

// Assembles each parameter on the last rank and counts it there; true counts on rank 0, nothing elsewhere.
class Gatherer {
 public:
  Gatherer(const ShardTable& shards, const MaskTable& masks, Collective& collective, const ReportOptions& options)
      : shards_(shards),
        masks_(masks),
        collective_(collective),
        options_(options),
        tag_{"report", options.command_id},
        root_(collective.world_size() - 1) {}

  absl::StatusOr<CountList> Run() {
    ESPALIER_ASSIGN_OR_RETURN(const GatherLayout layout,
                              GatherLayout::Agree(shards_, masks_, collective_, options_.command_id, buffer_));
    CountList counts;
    for (size_t i = 0; i < shards_.names().size(); ++i) {
      ESPALIER_ASSIGN_OR_RETURN(const Counts full, CountFull(shards_.names()[i], layout.parts(i)));
      counts.push_back(full.zeros);
      counts.push_back(full.masked);
      options_.progress(static_cast<int64_t>(i) + 1, static_cast<int64_t>(shards_.names().size()));
    }
    return ToRankZero(std::move(counts));
  }

 private:
  bool at_root() const { return collective_.rank() == root_; }

  // Zeros outside of the root.
  absl::StatusOr<Counts> CountFull(const std::string& name, const GatherParts& parts) {
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards_.Lookup(name));
    Counts counts;
    if (absl::Span<std::byte> full = Room(parts.value_bytes_total); parts.value_bytes_total > 0) {
      ESPALIER_RETURN_IF_ERROR(collective_.GatherTo(tag_, root_, shard.storage->bytes(), parts.value_bytes, full));
      if (at_root()) counts.zeros = CountZeros(shard.parameter->dtype(), full);
    }
    if (absl::Span<std::byte> packed = Room(parts.mask_bytes_total); parts.mask_bytes_total > 0) {
      ESPALIER_RETURN_IF_ERROR(collective_.GatherTo(tag_, root_, MaskBytes(name), parts.mask_bytes, packed));
      if (at_root()) counts.masked = PrunedInWords(packed, parts.masked_elements);
    }
    return counts;
  }

  absl::Span<std::byte> Room(int64_t bytes) const {
    return at_root() ? buffer_->bytes().subspan(0, static_cast<size_t>(bytes)) : absl::Span<std::byte>();
  }

  absl::Span<const std::byte> MaskBytes(const std::string& name) const {
    const ShardMask* mask = MaskOf(masks_, name);
    if (mask == nullptr) return {};
    const absl::Span<const uint64_t> words = mask->bits->words();
    // The words travel as bytes; every object may be looked at as std::byte.
    return {reinterpret_cast<const std::byte*>(words.data()), words.size() * sizeof(uint64_t)};
  }

  absl::StatusOr<CountList> ToRankZero(CountList counts) {
    const int64_t bytes = static_cast<int64_t>(counts.size() * sizeof(int64_t));
    std::vector<int64_t> sizes(static_cast<size_t>(collective_.world_size()), 0);
    sizes[static_cast<size_t>(root_)] = bytes;
    CountList received(collective_.rank() == 0 ? counts.size() : 0);
    const auto in = at_root() ? counts : CountList();
    // Integers travel as bytes; every object may be looked at as std::byte.
    ESPALIER_RETURN_IF_ERROR(collective_.GatherTo(
        tag_, 0, {reinterpret_cast<const std::byte*>(in.data()), in.size() * sizeof(int64_t)}, sizes,
        {reinterpret_cast<std::byte*>(received.data()), received.size() * sizeof(int64_t)}));
    return received;
  }

  const ShardTable& shards_;
  const MaskTable& masks_;
  Collective& collective_;
  const ReportOptions& options_;
  const CollectiveTag tag_;
  const int root_;
  std::shared_ptr<Storage> buffer_;  // of the largest parameter; on the root alone
};

absl::StatusOr<CountList> CountModel(const ShardTable& shards, const MaskTable& masks, Collective& collective,
                                     const ReportOptions& options) {
  if (options.mode == v1::REPORT_MODE_GATHER && collective.world_size() > 1) {
    return Gatherer(shards, masks, collective, options).Run();
  }
  ESPALIER_ASSIGN_OR_RETURN(CountList counts, CountShards(shards, masks, options));
  if (collective.world_size() > 1) {
    ESPALIER_RETURN_IF_ERROR(
        collective.AllReduce({"report", options.command_id}, absl::MakeSpan(counts), ReduceOp::kSum));
  }
  return counts;
}

v1::ParameterSparsity Row(const v1::Parameter& parameter, const ShardMask* mask, Counts counts) {
  v1::ParameterSparsity row;
  row.set_name(parameter.name());
  row.set_dtype(parameter.dtype());
  *row.mutable_shape() = parameter.shape();
  row.set_numel(NumElements(parameter.shape()));
  row.set_zeros(counts.zeros);
  row.set_masked(counts.masked);
  row.set_prunable(parameter.prunable());
  row.set_planned(-1);
  if (mask != nullptr) {
    *row.mutable_structure() = mask->structure;
    row.set_mask_version(mask->version);
    row.set_planned(mask->planned);
  }
  return row;
}

}  // namespace

absl::StatusOr<std::vector<v1::ParameterSparsity>> ComputeReport(const ShardTable& shards, const MaskTable& masks,
                                                                 Collective& collective, const ReportOptions& options) {
  ESPALIER_ASSIGN_OR_RETURN(const CountList counts, CountModel(shards, masks, collective, options));
  std::vector<v1::ParameterSparsity> rows;
  if (counts.empty()) return rows;
  rows.reserve(shards.names().size());
  for (size_t i = 0; i < shards.names().size(); ++i) {
    const std::string& name = shards.names()[i];
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(name));
    rows.push_back(Row(*shard.parameter, MaskOf(masks, name), {.zeros = counts[2 * i], .masked = counts[2 * i + 1]}));
  }
  return rows;
}

}  // namespace espalier
