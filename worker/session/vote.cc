#include "worker/session/vote.h"

#include <bit>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"
#include "worker/mask/digest.h"

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written as they lie in memory");

constexpr uint64_t kMagic = 0x31455450'534501ULL;  // changes with the layout

struct Layout {
  uint64_t magic;
  uint32_t ok;
  int32_t rank;
  int64_t generation;
  int64_t version;
  uint64_t run_hash;
  uint64_t selection_hash;
  uint64_t digest_part;
  uint64_t crc;
};
static_assert(sizeof(Layout) == kVoteBytes);

uint32_t Check(const Layout& layout) {
  return Crc32(0, &layout, sizeof layout - sizeof layout.crc);
}

using Common = std::tuple<int64_t, int64_t, uint64_t, uint64_t>;

Common CommonOf(const Layout& vote) {
  return {vote.generation, vote.version, vote.run_hash, vote.selection_hash};
}

std::string Describe(const Layout& vote) {
  return absl::StrCat("generation ", vote.generation, ", version ", vote.version, ", run ",
                      absl::Hex(vote.run_hash, absl::kZeroPad16), ", selection ",
                      absl::Hex(vote.selection_hash, absl::kZeroPad16));
}

// A rank whose vote most others share; the lowest of equals.
size_t MajorityOf(const std::vector<Layout>& votes, int& support) {
  size_t best = 0;
  support = 0;
  for (size_t i = 0; i < votes.size(); ++i) {
    int same = 0;
    for (const Layout& other : votes) same += CommonOf(votes[i]) == CommonOf(other) ? 1 : 0;
    if (same > support) {
      best = i;
      support = same;
    }
  }
  return best;
}

}  // namespace

VoteRecord EncodeVote(const Vote& vote) {
  Layout layout{kMagic,
                vote.ok ? 1U : 0U,
                vote.rank,
                vote.generation,
                vote.version,
                vote.run_hash,
                vote.selection_hash,
                vote.digest_part,
                0};
  layout.crc = Check(layout);
  VoteRecord record;
  std::memcpy(record.data(), &layout, sizeof layout);
  return record;
}

Verdict FoldVotes(absl::Span<const std::byte> records) {
  std::vector<Layout> votes(records.size() / kVoteBytes);
  Verdict verdict;
  std::vector<std::string> refused;
  for (size_t i = 0; i < votes.size(); ++i) {
    std::memcpy(&votes[i], records.data() + i * kVoteBytes, kVoteBytes);
    if (votes[i].magic != kMagic || votes[i].crc != Check(votes[i]) || votes[i].rank != static_cast<int32_t>(i)) {
      verdict.status =
          MakeError(v1::ERROR_REASON_STATE_DIVERGED,
                    absl::StrCat("the vote of rank ", i, " is not one of this protocol"), {{"rank", absl::StrCat(i)}});
      return verdict;
    }
    if (votes[i].ok == 0) refused.push_back(absl::StrCat(i));
  }
  if (!refused.empty()) {
    verdict.all_refused = refused.size() == votes.size();
    verdict.status =
        MakeError(v1::ERROR_REASON_INVARIANT,
                  absl::StrCat("rank ", absl::StrJoin(refused, ", "),
                               " could not select the new mask; no rank adopts it (its own error says why)"),
                  {{"what", "vote"}, {"rank", absl::StrJoin(refused, ",")}});
    return verdict;
  }
  int support = 0;
  const size_t reference = MajorityOf(votes, support);
  for (size_t i = 0; i < votes.size(); ++i) {
    verdict.digest = AddDigests(verdict.digest, votes[i].digest_part);
    if (CommonOf(votes[i]) == CommonOf(votes[reference])) continue;
    const bool majority = 2 * static_cast<size_t>(support) > votes.size();
    verdict.status = MakeError(
        v1::ERROR_REASON_STATE_DIVERGED,
        absl::StrCat("rank ", i, " selected otherwise than ",
                     majority ? "most ranks" : absl::StrCat("rank ", reference), "; no rank adopts the mask (want ",
                     Describe(votes[reference]), "; got ", Describe(votes[i]), ")"),
        {{"rank", absl::StrCat(i)}, {"want", Describe(votes[reference])}, {"got", Describe(votes[i])}});
    return verdict;
  }
  verdict.adopt = true;
  return verdict;
}

}  // namespace espalier
