#include <array>
#include <random>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/thread_collective.h"
#include "tests/unit/worker/select/reference.h"
#include "worker/select/groups.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr v1::Dtype kDtypes[] = {v1::DTYPE_BF16, v1::DTYPE_F16, v1::DTYPE_F32, v1::DTYPE_F64};

v1::UpdateSpec NOfM(const std::vector<Tensor>& tensors, int n, int m) {
  v1::UpdateSpec spec = MakeSpec(v1::SELECTION_METHOD_N_OF_M, tensors, {});
  spec.mutable_structure()->set_n(n);
  spec.mutable_structure()->set_m(m);
  return spec;
}

TEST(CrowdedGroupsTest, CountsThoseThatKeepMore) {
  const auto mask = [](absl::string_view keep) {
    Bitmask out(static_cast<int64_t>(keep.size()));
    for (size_t i = 0; i < keep.size(); ++i) out.Set(static_cast<int64_t>(i), keep[i] == '1');
    return out;
  };
  const GroupLayout rows = {.n = 2, .m = 4};
  EXPECT_EQ(CrowdedGroups(rows, mask("110000110000"), {0, 12}), 0);
  EXPECT_EQ(CrowdedGroups(rows, mask("111000111111"), {0, 12}), 2);
  // Groups down columns take every second element.
  const GroupLayout columns = {.n = 1, .m = 2, .stride = 2};
  EXPECT_EQ(CrowdedGroups(columns, mask("11001010"), {0, 8}), 1);
  EXPECT_EQ(CrowdedGroups(columns, mask("11001001"), {0, 8}), 0);
  // A block of which only a part lies in the range is another rank's to count.
  EXPECT_EQ(CrowdedGroups(rows, mask("11111111"), {2, 10}), 1);
}

class NOfMTest : public ::testing::TestWithParam<int> {
 protected:
  void ExpectReference(const v1::UpdateSpec& spec, const std::vector<Tensor>& tensors,
                       const std::vector<std::vector<int64_t>>& cuts = {}) {
    const Joined joined = SelectOn(GetParam(), spec, tensors, cuts);
    ASSERT_OK(joined.status);
    EXPECT_EQ(joined.counted, joined.pruned);
    const std::vector<Bitmask> expected = ReferenceMasks(spec, tensors);
    for (size_t t = 0; t < tensors.size(); ++t) {
      EXPECT_EQ(ToString(joined.masks[t]), ToString(expected[t])) << tensors[t].parameter.ShortDebugString();
    }
  }

  std::mt19937_64 random_{4242};
};

TEST_P(NOfMTest, GroupsAlongRows) {
  std::vector<Tensor> tensors;
  for (const v1::Dtype dtype : kDtypes) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 72}, {1, 144}, {0, 72}, {9, 0}}) {
      tensors.push_back(MakeTensor("t" + std::to_string(100 + tensors.size()), dtype, shape));
      FillWithTies(tensors.back(), random_, true);
    }
    Tensor conv = MakeTensor("u" + std::to_string(100 + tensors.size()), dtype, {6, 8, 3, 3});
    conv.parameter.set_layer_kind(v1::LAYER_KIND_CONV);
    conv.parameter.set_input_dimension(1);
    FillWithTies(conv, random_, true);
    tensors.push_back(conv);
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.parameter.name() < b.parameter.name(); });
  for (const auto& [n, m] : {std::pair{2, 4}, {1, 4}, {3, 4}, {4, 8}, {0, 2}, {3, 3}, {5, 24}, {1, 72}}) {
    ExpectReference(NOfM(tensors, n, m), tensors);
  }
  // A mask that is there already comes first.
  for (Tensor& tensor : tensors) {
    tensor.current = Bitmask(tensor.size());
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.current->Set(i, random_() % 3 != 0);
  }
  for (const auto& [n, m] : {std::pair{2, 4}, {4, 8}, {5, 24}}) ExpectReference(NOfM(tensors, n, m), tensors);
}

// A layer stored [in, out]: groups run down the columns, and ranks own rows.
TEST_P(NOfMTest, GroupsDownColumnsOverRanks) {
  for (const v1::Dtype dtype : kDtypes) {
    Tensor tensor = MakeTensor("w", dtype, {24, 5});
    tensor.parameter.set_layer_kind(v1::LAYER_KIND_TRANSPOSED_LINEAR);
    tensor.parameter.set_input_dimension(0);
    FillWithTies(tensor, random_, true);
    for (const auto& [n, m] : {std::pair{2, 4}, {1, 12}, {4, 24}}) ExpectReference(NOfM({tensor}, n, m), {tensor});
  }
}

TEST_P(NOfMTest, RangesMayCutGroups) {
  for (int round = 0; round < 20; ++round) {
    const v1::Dtype dtype = kDtypes[round % 4];
    Tensor tensor = MakeTensor("w", dtype, {3, 24});
    FillWithTies(tensor, random_, true);
    std::vector<int64_t> cuts;
    for (int r = 1; r < GetParam(); ++r) cuts.push_back(static_cast<int64_t>(random_() % 73));
    std::sort(cuts.begin(), cuts.end());
    ExpectReference(NOfM({tensor}, 3, 8), {tensor}, {cuts});
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, NOfMTest, ::testing::Values(1, 2, 3, 4, 8));

// known-bugs 17: N is what is kept.
TEST(NOfM, KeepsNOfEachGroup) {
  const Tensor tensor = MakeTensor("w", v1::DTYPE_F32, {1, 8}, {4, 1, -3, 2, 5, 8, 6, -7});
  EXPECT_EQ(ToString(SelectOn(1, NOfM({tensor}, 1, 4), {tensor}).masks[0]), "10000100");
  EXPECT_EQ(ToString(SelectOn(1, NOfM({tensor}, 3, 4), {tensor}).masks[0]), "10110111");
  EXPECT_EQ(ToString(SelectOn(1, NOfM({tensor}, 2, 4), {tensor}).masks[0]), "10100101");
}

// known-bugs 16
TEST(NOfM, RowsThatAreNoMultipleOfMAreRefusedByName) {
  const Tensor six = MakeTensor("six.weight", v1::DTYPE_BF16, {4, 6});
  const Tensor eight = MakeTensor("a.weight", v1::DTYPE_BF16, {4, 8});
  for (const int world_size : {1, 3}) {
    EXPECT_THAT(SelectOn(world_size, NOfM({eight, six}, 2, 4), {eight, six}).status,
                HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE, HasSubstr("six.weight")));
  }
  Tensor unknown = MakeTensor("experts.w1", v1::DTYPE_BF16, {2, 4, 8});
  EXPECT_THAT(SelectOn(1, NOfM({unknown}, 2, 4), {unknown}).status,
              HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE, HasSubstr("experts.w1")));
}

TEST(NOfM, TargetsAreChecked) {
  const Tensor tensor = MakeTensor("w", v1::DTYPE_F32, {2, 4}, {0, 0, 0, 1, 1, 2, 3, 4});
  v1::UpdateSpec spec = NOfM({tensor}, 2, 4);
  spec.add_targets(5);
  EXPECT_OK(SelectOn(2, spec, {tensor}).status);
  spec.set_targets(0, 4);
  EXPECT_THAT(SelectOn(2, spec, {tensor}).status, HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("5 elements")));
}

// Each rank counts what goes in its own range, whoever else has a part of the group.
TEST(NOfM, CountForUpdateSaysWhatGoes) {
  const Tensor tensor = MakeTensor("w", v1::DTYPE_F32, {2, 4}, {0, 0, 0, 1, 1, 2, 3, 4});
  const v1::UpdateSpec spec = NOfM({tensor}, 2, 4);
  EXPECT_THAT(SelectOn(1, spec, {tensor}).counted, ElementsAre(5));
  ThreadGroup group(3);
  group.Run([&](Collective& collective) {
    const ShardRange range =
        std::array<ShardRange, 3>{{{0, 1}, {1, 7}, {7, 8}}}[static_cast<size_t>(collective.rank())];
    const auto bytes = absl::MakeConstSpan(tensor.bytes);
    SelectInput input{&tensor.parameter, range,
                      bytes.subspan(static_cast<size_t>(range.begin * 4), static_cast<size_t>(range.size() * 4)),
                      nullptr};
    ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> counts,
                         CountForUpdate(spec, absl::MakeConstSpan(&input, 1), collective, 1));
    EXPECT_THAT(counts, ElementsAre(std::array{1, 4, 0}[static_cast<size_t>(collective.rank())]));
  });
}

// A rank that cannot count leaves nobody waiting.
TEST(NOfM, CountForUpdateFailsOnAllRanks) {
  const Tensor tensor = MakeTensor("w", v1::DTYPE_F32, {2, 4}, {0, 0, 0, 1, 1, 2, 3, 4});
  const v1::UpdateSpec spec = NOfM({tensor}, 2, 4);
  ThreadGroup group(2);
  group.Run([&](Collective& collective) {
    const bool broken = collective.rank() == 1;
    SelectInput input{&tensor.parameter, {0, 4}, absl::MakeConstSpan(tensor.bytes).first(broken ? 4 : 16), nullptr};
    EXPECT_THAT(CountForUpdate(spec, absl::MakeConstSpan(&input, 1), collective, 1),
                HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr(broken ? "do not fit" : "rank 1")));
  });
}

}  // namespace
}  // namespace espalier::testing
