#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/select/kernels.h"
#include "worker/select/threshold.h"
#include "worker/select/update.h"

namespace espalier {
namespace {

bool BySparseMl(const Update& update) {
  return update.spec.rule() == v1::SELECTION_RULE_SPARSEML;
}

// How many of the elements that equal the threshold are pruned. By SparseML's rule all of them, but no NaN.
int64_t TiesToPrune(const Update& update, const Threshold& threshold, int64_t target, int64_t wanted, uint64_t nan) {
  if (!BySparseMl(update)) return wanted - threshold.below;
  return target == 0 || threshold.image == nan ? 0 : threshold.equal;
}

// The part of this rank: ranks own ascending ranges, and among equals the latest are pruned first.
int64_t TiesOfRank(absl::Span<const int64_t> ties_of_ranks, int rank, int64_t to_prune) {
  for (size_t r = ties_of_ranks.size(); --r > static_cast<size_t>(rank);) to_prune -= ties_of_ranks[r];
  return std::clamp<int64_t>(to_prune, 0, ties_of_ranks[static_cast<size_t>(rank)]);
}

absl::Status CheckTarget(absl::string_view what, int64_t target, int64_t masked, int64_t elements) {
  if (target >= 0 && target <= elements && target >= masked) return absl::OkStatus();
  return SelectInvariant(
      absl::StrCat(what, ": ", target, " elements to prune of ", elements, ", ", masked, " are masked and stay so"));
}

// Of each rank the same number of counts, rank after rank.
absl::StatusOr<std::vector<int64_t>> GatherCounts(const Update& update, const std::vector<int64_t>& mine) {
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(update.collective.world_size()));
  // Counts travel as the bytes that they are: all ranks of a group have one byte order.
  ESPALIER_RETURN_IF_ERROR(update.collective.AllGather(
      update.tag, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(mine.data()), mine.size() * sizeof(int64_t)),
      absl::MakeSpan(reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(int64_t))));
  return all;
}

// Entry `i` of each rank.
std::vector<int64_t> Column(const std::vector<int64_t>& all, size_t width, size_t i) {
  std::vector<int64_t> column;
  for (size_t at = i; at < all.size(); at += width) column.push_back(all[at]);
  return column;
}

// By SparseML's rule the target counts what is masked like any zero, and zeros beside it go with it.
int64_t Wanted(const Update& update, int64_t target, int64_t masked) {
  return BySparseMl(update) ? std::max<int64_t>(target - masked, 0) : target - masked;
}

}  // namespace

absl::StatusOr<Selection> SelectEach(const Update& update, absl::Span<const int64_t> masked) {
  const size_t n = update.inputs.size();
  std::vector<ThresholdQuery> queries(n);
  for (size_t i = 0; i < n; ++i) {
    const int64_t target = update.spec.targets(static_cast<int>(i));
    ESPALIER_RETURN_IF_ERROR(
        CheckTarget(update.Name(i), target, BySparseMl(update) ? 0 : masked[i], update.NumElements(i)));
    queries[i].parts = {{update.Values(i), update.First(i)}};
    queries[i].format = update.Values(i).format();
    queries[i].count = Wanted(update, target, masked[i]);
    queries[i].elements = update.NumElements(i) - masked[i];
  }
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<Threshold> thresholds,
                            FindThresholds(queries, update.collective, update.tag));
  std::vector<int64_t> local_ties(n);
  for (size_t i = 0; i < n; ++i) local_ties[i] = thresholds[i].local_equal;
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<int64_t> all_ties, GatherCounts(update, local_ties));

  Selection selection;
  SelectionHash hash;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t nan = queries[i].format.nan;
    const Threshold& threshold = thresholds[i];
    const int64_t ties =
        TiesToPrune(update, threshold, update.spec.targets(static_cast<int>(i)), queries[i].count, nan);
    const int64_t mine = TiesOfRank(Column(all_ties, n, i), update.collective.rank(), ties);
    selection.masks.push_back(
        BuildMask(update.Values(i), threshold.image, threshold.local_equal - mine, update.First(i)));
    selection.pruned.push_back(masked[i] + threshold.below + ties);
    if (threshold.image == nan) selection.pruned_nans += mine;
    for (const int64_t value : {masked[i], threshold.below, threshold.equal, ties}) {
      hash.Add(static_cast<uint64_t>(value));
    }
    hash.Add(threshold.image);
  }
  selection.hash = hash.value();
  return selection;
}

absl::StatusOr<Selection> SelectGlobally(const Update& update, absl::Span<const int64_t> masked) {
  const size_t n = update.inputs.size();
  const int64_t target = update.spec.targets(0);
  bool mixed = false;
  int64_t elements = 0;
  for (size_t i = 0; i < n; ++i) {
    mixed |= update.inputs[i].parameter->dtype() != update.inputs[0].parameter->dtype();
    elements += update.NumElements(i);
  }
  const int64_t all_masked = std::accumulate(masked.begin(), masked.end(), int64_t{0});
  ESPALIER_RETURN_IF_ERROR(
      CheckTarget("the parameters together", target, BySparseMl(update) ? 0 : all_masked, elements));
  ThresholdQuery query;
  for (size_t i = 0; i < n; ++i) {
    query.parts.push_back({update.Values(i), update.First(i)});
    query.parts.back().values.as_f64 = mixed;
  }
  query.format = query.parts[0].values.format();
  query.count = Wanted(update, target, all_masked);
  query.elements = elements - all_masked;
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<Threshold> thresholds,
                            FindThresholds(absl::MakeConstSpan(&query, 1), update.collective, update.tag));
  const Threshold& threshold = thresholds[0];
  int64_t ties_left = TiesToPrune(update, threshold, target, query.count, query.format.nan);

  std::vector<int64_t> counts(2 * n);  // below and equal, of each parameter
  for (size_t i = 0; i < n; ++i) {
    const OrderCounts at = CountAt(query.parts[i].values, threshold.image, query.parts[i].first);
    counts[2 * i] = at.below;
    counts[2 * i + 1] = at.equal;
  }
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<int64_t> all_counts, GatherCounts(update, counts));

  // Ties go by name first; the parameters of a spec are sorted.
  Selection selection;
  std::vector<int64_t> pruned_ties(n);
  SelectionHash hash;
  hash.Add(threshold.image);
  for (size_t i = 0; i < n; ++i) {
    const std::vector<int64_t> below = Column(all_counts, 2 * n, 2 * i);
    const std::vector<int64_t> equal = Column(all_counts, 2 * n, 2 * i + 1);
    pruned_ties[i] = std::min(ties_left, std::accumulate(equal.begin(), equal.end(), int64_t{0}));
    ties_left -= pruned_ties[i];
    const int64_t pruned = masked[i] + std::accumulate(below.begin(), below.end(), int64_t{0}) + pruned_ties[i];
    if (pruned == update.NumElements(i) && pruned > 0 && !update.spec.allow_empty()) {
      return Unprunable(update.Name(i), absl::StrCat("the global target prunes all ", pruned,
                                                     " elements of it; lower the sparsity, ignore this parameter, or "
                                                     "set allow_empty: true"));
    }
    selection.pruned.push_back(pruned);
    hash.Add(static_cast<uint64_t>(pruned));
    hash.Add(static_cast<uint64_t>(pruned_ties[i]));
  }
  if (ties_left != 0) return SelectInvariant("the elements changed while they were looked at");
  for (size_t i = 0; i < n; ++i) {
    const int64_t mine = TiesOfRank(Column(all_counts, 2 * n, 2 * i + 1), update.collective.rank(), pruned_ties[i]);
    selection.masks.push_back(
        BuildMask(query.parts[i].values, threshold.image, counts[2 * i + 1] - mine, query.parts[i].first));
    if (threshold.image == query.format.nan) selection.pruned_nans += mine;
  }
  selection.hash = hash.value();
  return selection;
}

}  // namespace espalier
