#include "server/run/update_rules.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/support/digest_sum.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier {
namespace {

absl::Status CountsDoNotFit(size_t rank, absl::string_view what) {
  return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("rank ", rank, ": ", what, "; the update is not adopted"),
                   {{"what", std::string(what)}, {"where", "counts of an update"}, {"rank", absl::StrCat(rank)}});
}

// Element-wise sum of one vector of every rank.
template <typename Get>
absl::StatusOr<std::vector<int64_t>> SumRanks(size_t parameters, size_t ranks, Get get) {
  std::vector<int64_t> sum(parameters, 0);
  for (size_t r = 0; r < ranks; ++r) {
    const std::vector<int64_t>& counts = get(r);
    if (counts.size() != parameters) {
      return CountsDoNotFit(r, absl::StrCat("counts of ", counts.size(), " parameters instead of ", parameters));
    }
    for (size_t i = 0; i < parameters; ++i) {
      if (counts[i] < 0) return CountsDoNotFit(r, "a negative count");
      sum[i] += counts[i];
    }
  }
  return sum;
}

int64_t Total(absl::Span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

absl::Status NotEffective(const std::string& parameter, absl::string_view what, int64_t want, int64_t got) {
  return MakeError(v1::ERROR_REASON_MASK_NOT_EFFECTIVE,
                   absl::StrCat("parameter ", parameter, ": ", what, ": want ", want, ", got ", got,
                                "; the mask is not in the live tensor, nothing of it is saved"),
                   {{"parameter", parameter}, {"want", absl::StrCat(want)}, {"got", absl::StrCat(got)}});
}

absl::Status Diverged(size_t rank, absl::string_view what, uint64_t want, uint64_t got) {
  return MakeError(v1::ERROR_REASON_STATE_DIVERGED,
                   absl::StrCat("rank ", rank, " computed another ", what, " than rank 0: want ", want, ", got ", got),
                   {{"rank", absl::StrCat(rank)}, {"want", absl::StrCat(want)}, {"got", absl::StrCat(got)}});
}

absl::Status CheckMasked(const v1::UpdateSpec& pushed, const Intent& intent, absl::Span<const int64_t> masked) {
  const auto check = [&](absl::string_view what, int64_t want, int64_t got) {
    if (got == want || (intent.at_least && got > want)) return absl::OkStatus();
    return MakeError(
        v1::ERROR_REASON_INVARIANT,
        absl::StrCat("update ", pushed.version(), ": ", what, ": ", want, " elements were to be pruned, ", got, " are"),
        {{"what", absl::StrCat(what)}, {"where", absl::StrCat("update ", pushed.version())}});
  };
  if (pushed.method() == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE) {
    return check("all parameters together", intent.targets[0], Total(masked));
  }
  for (size_t i = 0; i < masked.size(); ++i) {
    ESPALIER_RETURN_IF_ERROR(check(pushed.parameters(static_cast<int>(i)), intent.targets[i], masked[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Intent> DecidePruned(const v1::UpdateSpec& counting, absl::Span<const int64_t> numel,
                                    absl::Span<const RankCounts> ranks) {
  ESPALIER_ASSIGN_OR_RETURN(
      const std::vector<int64_t> counts,
      SumRanks(numel.size(), ranks.size(), [&](size_t r) -> const std::vector<int64_t>& { return ranks[r].counts; }));
  for (size_t i = 0; i < numel.size(); ++i) {
    if (counts[i] > numel[i]) return CountsDoNotFit(0, "more counted over all ranks than the parameter has elements");
  }
  Intent intent;
  switch (counting.method()) {
    case v1::SELECTION_METHOD_MAGNITUDE:
      if (static_cast<size_t>(counting.targets_size()) != numel.size()) return CountsDoNotFit(0, "targets do not fit");
      for (size_t i = 0; i < numel.size(); ++i) {
        intent.targets.push_back(std::max(counting.targets(static_cast<int>(i)), counts[i]));
      }
      intent.at_least = counting.rule() == v1::SELECTION_RULE_SPARSEML;
      return intent;
    case v1::SELECTION_METHOD_GLOBAL_MAGNITUDE:
      if (counting.targets_size() != 1) return CountsDoNotFit(0, "a global selection has one target");
      intent.targets = {std::max(counting.targets(0), Total(counts))};
      intent.at_least = counting.rule() == v1::SELECTION_RULE_SPARSEML;
      return intent;
    case v1::SELECTION_METHOD_N_OF_M:
    case v1::SELECTION_METHOD_CONSTANT:
      intent.targets = counts;
      return intent;
    default:
      return MakeError(v1::ERROR_REASON_INVARIANT,
                       absl::StrCat("checkpoint workers cannot run ", v1::SelectionMethod_Name(counting.method())),
                       {{"what", "method"}, {"where", "update"}});
  }
}

absl::StatusOr<Committed> CheckUpdate(const v1::UpdateSpec& pushed, const Intent& intent,
                                      absl::Span<const RankUpdate> ranks, bool checks) {
  const size_t parameters = static_cast<size_t>(pushed.parameters_size());
  Committed out;
  ESPALIER_ASSIGN_OR_RETURN(
      out.masked, SumRanks(
                      parameters, ranks.size(), [&](size_t r) -> const auto& { return ranks[r].counts.counts; }));
  out.selection_hash = ranks[0].result.selection_hash();
  for (size_t r = 0; r < ranks.size(); ++r) {
    out.mask_digest = AddDigests(out.mask_digest, ranks[r].result.mask_digest());
    if (!checks) continue;
    const v1::UpdateMasksResult& result = ranks[r].result;
    if (result.version() != pushed.version()) {
      return Diverged(r, "mask version", static_cast<uint64_t>(pushed.version()),
                      static_cast<uint64_t>(result.version()));
    }
    if (result.selection_hash() != out.selection_hash) {
      return Diverged(r, "selection", out.selection_hash, result.selection_hash());
    }
  }
  if (!checks) return out;
  ESPALIER_ASSIGN_OR_RETURN(
      const std::vector<int64_t> zeros,
      SumRanks(
          parameters, ranks.size(), [&](size_t r) -> const auto& { return ranks[r].counts.zeros; }));
  ESPALIER_ASSIGN_OR_RETURN(
      const std::vector<int64_t> violations,
      SumRanks(
          parameters, ranks.size(), [&](size_t r) -> const auto& { return ranks[r].counts.violations; }));
  for (size_t i = 0; i < parameters; ++i) {
    const std::string& name = pushed.parameters(static_cast<int>(i));
    if (violations[i] != 0) return NotEffective(name, "non-zeros under the mask", 0, violations[i]);
    if (zeros[i] < out.masked[i]) return NotEffective(name, "zeros", out.masked[i], zeros[i]);
  }
  ESPALIER_RETURN_IF_ERROR(CheckMasked(pushed, intent, out.masked));
  return out;
}

absl::Status CheckPlanned(absl::Span<const v1::ParameterSparsity> rows) {
  for (const v1::ParameterSparsity& row : rows) {
    if (row.planned() < 0) continue;
    if (row.masked() != row.planned()) {
      return NotEffective(row.name(), "masked positions", row.planned(), row.masked());
    }
    if (row.zeros() < row.masked()) return NotEffective(row.name(), "zeros", row.masked(), row.zeros());
  }
  return absl::OkStatus();
}

}  // namespace espalier
