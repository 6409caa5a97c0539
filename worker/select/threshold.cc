#include "worker/select/threshold.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/select/kernels.h"

namespace espalier {
namespace {

// Bits that one pass over the elements tells apart. The wide histograms cost more than the elements of a small
// parameter, for which each round makes a pass of its own.
constexpr int kLeadingWidth = 15;
constexpr int kFollowingWidth = 16;
constexpr int64_t kFewElements = 1 << 14;
constexpr int kRoundWidth = 5;
constexpr size_t kRoundBins = size_t{1} << kRoundWidth;
constexpr size_t kHistogramBudget = size_t{16} << 20;

// How far a query has come.
struct Progress {
  uint64_t prefix = 0;    // of the image
  int64_t remaining = 0;  // rank of the wanted element among those that start with the prefix
  Threshold threshold;
};

bool IsSmall(const ThresholdQuery& query) {
  return query.elements < kFewElements;
}

// Queries that make the same passes.
class Batch {
 public:
  Batch(absl::Span<const ThresholdQuery> queries, absl::Span<const size_t> members, Collective& collective,
        const CollectiveTag& tag)
      : queries_(queries), members_(members), collective_(collective), tag_(tag), progress_(members.size()) {}

  // `histograms`: memory for at least as many as there are members.
  absl::Status Run(Histogrammer& histogrammer, std::vector<Histogram>& histograms, absl::Span<Threshold> thresholds) {
    for (size_t i = 0; i < members_.size(); ++i) progress_[i].remaining = query(i).count;
    const int bits = query(0).format.bits;
    for (int left = bits; left > 0;) {
      const int width = IsSmall(query(0)) ? std::min(left, kRoundWidth)
                        : left == bits    ? kLeadingWidth
                                          : kFollowingWidth;
      left -= width;
      ESPALIER_RETURN_IF_ERROR(RunPass(histogrammer, histograms, width, left, left + width == bits));
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      progress_[i].threshold.image = progress_[i].prefix;
      thresholds[members_[i]] = progress_[i].threshold;
    }
    return absl::OkStatus();
  }

 private:
  const ThresholdQuery& query(size_t i) const { return queries_[members_[i]]; }

  absl::Status RunPass(Histogrammer& histogrammer, std::vector<Histogram>& histograms, int width, int shift,
                       bool first_pass) {
    for (size_t i = 0; i < members_.size(); ++i) {
      const RadixPass pass{progress_[i].prefix, width, shift};
      histograms[i].Reset(pass.bins());
      for (const ThresholdQuery::Part& part : query(i).parts) {
        histogrammer.Add(part.values, pass, part.first, histograms[i]);
      }
    }
    // `at`: first of the bins that each query has come down to, 2^left of them.
    std::vector<size_t> at(members_.size());
    for (int left = width; left > 0;) {
      const int round = std::min(left, kRoundWidth);
      left -= round;
      ESPALIER_RETURN_IF_ERROR(RunRound(histograms, round, left, first_pass && left + round == width, at));
    }
    for (size_t i = 0; i < members_.size(); ++i) progress_[i].threshold.local_equal = histograms[i][at[i]];
    return absl::OkStatus();
  }

  // Tells 2^round groups of 2^left bins apart.
  absl::Status RunRound(const std::vector<Histogram>& histograms, int round, int left, bool first_round,
                        std::vector<size_t>& at) {
    sums_.assign(members_.size() * kRoundBins, 0);
    const size_t digits = size_t{1} << round;
    for (size_t i = 0; i < members_.size(); ++i) {
      for (size_t digit = 0; digit < digits; ++digit) {
        sums_[i * kRoundBins + digit] = histograms[i].Sum(at[i] + (digit << left), size_t{1} << left);
      }
    }
    ESPALIER_RETURN_IF_ERROR(collective_.AllReduce(tag_, absl::MakeSpan(sums_), ReduceOp::kSum));
    for (size_t i = 0; i < members_.size(); ++i) {
      const absl::Span<const int64_t> sums = absl::MakeConstSpan(sums_).subspan(i * kRoundBins, digits);
      if (first_round) ESPALIER_RETURN_IF_ERROR(CheckTotal(query(i), sums));
      Progress& progress = progress_[i];
      size_t digit = 0;
      while (digit + 1 < digits && progress.remaining > sums[digit]) {
        progress.remaining -= sums[digit];
        progress.threshold.below += sums[digit];
        ++digit;
      }
      progress.threshold.equal = sums[digit];
      progress.prefix = progress.prefix << round | digit;
      at[i] += digit << left;
    }
    return absl::OkStatus();
  }

  // All ranks see the same sums, so that all fail or none.
  absl::Status CheckTotal(const ThresholdQuery& query, absl::Span<const int64_t> sums) const {
    const int64_t total = std::accumulate(sums.begin(), sums.end(), int64_t{0});
    if (total == query.elements && query.count >= 0 && query.count <= total) return absl::OkStatus();
    return MakeError(v1::ERROR_REASON_INVARIANT,
                     absl::StrCat("the ranks hold ", total, " elements to select from, expected ", query.elements,
                                  "; wanted is number ", query.count),
                     {{"what", "elements of the shards"}, {"where", std::string(tag_.operation)}});
  }

  const absl::Span<const ThresholdQuery> queries_;
  const absl::Span<const size_t> members_;
  Collective& collective_;
  const CollectiveTag tag_;
  std::vector<Progress> progress_;
  std::vector<int64_t> sums_;
};

}  // namespace

absl::StatusOr<std::vector<Threshold>> FindThresholds(absl::Span<const ThresholdQuery> queries, Collective& collective,
                                                      const CollectiveTag& tag) {
  std::vector<Threshold> thresholds(queries.size());
  Histogrammer histogrammer;
  std::vector<Histogram> histograms;
  for (const int bits : {15, 31, 63}) {
    for (const bool small : {true, false}) {
      std::vector<size_t> members;
      for (size_t i = 0; i < queries.size(); ++i) {
        if (queries[i].format.bits == bits && IsSmall(queries[i]) == small) members.push_back(i);
      }
      const int widest = small ? kRoundWidth : bits == kLeadingWidth ? kLeadingWidth : kFollowingWidth;
      const size_t at_once = kHistogramBudget / (sizeof(int64_t) << widest);
      for (size_t begin = 0; begin < members.size(); begin += at_once) {
        const absl::Span<const size_t> taken = absl::MakeConstSpan(members).subspan(begin, at_once);
        histograms.resize(std::max(histograms.size(), taken.size()));
        Batch batch(queries, taken, collective, tag);
        ESPALIER_RETURN_IF_ERROR(batch.Run(histogrammer, histograms, absl::MakeSpan(thresholds)));
      }
    }
  }
  return thresholds;
}

}  // namespace espalier
