#include "worker/session/vote.h"

#include <vector>

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::HasReason;
using ::testing::HasSubstr;

std::vector<Vote> Equal(int world_size) {
  std::vector<Vote> votes;
  for (int r = 0; r < world_size; ++r) {
    votes.push_back({.ok = true,
                     .rank = r,
                     .generation = 3,
                     .version = 7,
                     .run_hash = 11,
                     .selection_hash = 13,
                     .digest_part = static_cast<uint64_t>(100 + r)});
  }
  return votes;
}

Verdict Fold(const std::vector<Vote>& votes) {
  std::vector<std::byte> records;
  for (const Vote& vote : votes) {
    const VoteRecord record = EncodeVote(vote);
    records.insert(records.end(), record.begin(), record.end());
  }
  return FoldVotes(records);
}

TEST(VoteTest, AdoptsWhatAllSelectedAlike) {
  for (const int world_size : {1, 2, 3, 8}) {
    const Verdict verdict = Fold(Equal(world_size));
    EXPECT_TRUE(verdict.adopt);
    EXPECT_OK(verdict.status);
  }
  EXPECT_EQ(Fold(Equal(3)).digest, 303U);
}

TEST(VoteTest, DigestPartsAddUpModulo) {
  std::vector<Vote> votes = Equal(2);
  constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
  votes[0].digest_part = kPrime - 1;
  votes[1].digest_part = 5;
  EXPECT_EQ(Fold(votes).digest, 4U);
}

TEST(VoteTest, NamesTheOddRank) {
  std::vector<Vote> votes = Equal(3);
  votes[0].selection_hash = 14;
  const Verdict verdict = Fold(votes);
  EXPECT_FALSE(verdict.adopt);
  EXPECT_FALSE(verdict.all_refused);
  EXPECT_THAT(verdict.status, HasReason(v1::ERROR_REASON_STATE_DIVERGED, HasSubstr("rank 0 selected otherwise")));
  EXPECT_EQ(MetadataOf(verdict.status, "rank"), "0");
  EXPECT_THAT(MetadataOf(verdict.status, "want"), HasSubstr("000000000000000d"));
  EXPECT_THAT(MetadataOf(verdict.status, "got"), HasSubstr("000000000000000e"));
}

TEST(VoteTest, NamesBothOfTwo) {
  std::vector<Vote> votes = Equal(2);
  votes[1].version = 8;
  EXPECT_THAT(Fold(votes).status,
              HasReason(v1::ERROR_REASON_STATE_DIVERGED, HasSubstr("rank 1 selected otherwise than rank 0")));
}

TEST(VoteTest, EveryCommonFieldCounts) {
  for (auto change : {+[](Vote& v) { v.generation = 4; }, +[](Vote& v) { v.version = 8; },
                      +[](Vote& v) { v.run_hash = 12; }, +[](Vote& v) { v.selection_hash = 14; }}) {
    std::vector<Vote> votes = Equal(3);
    change(votes[2]);
    EXPECT_EQ(MetadataOf(Fold(votes).status, "rank"), "2");
  }
}

TEST(VoteTest, OneRefusalIsEnough) {
  std::vector<Vote> votes = Equal(3);
  votes[1].ok = false;
  const Verdict verdict = Fold(votes);
  EXPECT_FALSE(verdict.adopt);
  EXPECT_FALSE(verdict.all_refused);
  EXPECT_THAT(verdict.status, HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("rank 1 could not select")));
}

TEST(VoteTest, KnowsWhenAllRefused) {
  std::vector<Vote> votes = Equal(2);
  votes[0].ok = votes[1].ok = false;
  EXPECT_TRUE(Fold(votes).all_refused);
  EXPECT_FALSE(Fold(votes).adopt);
}

TEST(VoteTest, ADamagedRecordIsNoVote) {
  std::vector<std::byte> records;
  for (const Vote& vote : Equal(2)) {
    const VoteRecord record = EncodeVote(vote);
    records.insert(records.end(), record.begin(), record.end());
  }
  for (size_t at = kVoteBytes; at < records.size(); ++at) {
    std::vector<std::byte> damaged = records;
    damaged[at] ^= std::byte{1};
    const Verdict verdict = FoldVotes(damaged);
    EXPECT_FALSE(verdict.adopt) << at;
    EXPECT_THAT(verdict.status, HasReason(v1::ERROR_REASON_STATE_DIVERGED, HasSubstr("rank 1"))) << at;
  }
}

TEST(VoteTest, RecordsStandInTheOrderOfRanks) {
  std::vector<Vote> votes = Equal(2);
  std::swap(votes[0], votes[1]);
  EXPECT_FALSE(Fold(votes).adopt);
}

}  // namespace
}  // namespace espalier
