#include "worker/select/select.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

#include "tests/support/status_matchers.h"
#include "tests/support/thread_collective.h"
#include "tests/unit/worker/select/reference.h"
#include "worker/collective/single_process.h"

namespace espalier::testing {
namespace {

using Shape = std::vector<int64_t>;

constexpr v1::Dtype kDtypes[] = {v1::DTYPE_BF16, v1::DTYPE_F16, v1::DTYPE_F32, v1::DTYPE_F64};
const Shape kShapes[] = {{17, 13}, {1, 40}, {3, 64}, {129}, {}, {0}, {4, 0}, {8, 3, 5}, {1}, {2, 128}};
const Shape kLargeShape = {131, 127};  // of which histograms are wide

class SelectTest : public ::testing::TestWithParam<int> {
 protected:
  int world_size() const { return GetParam(); }

  // The masks, which must be those of sorting.
  Joined ExpectReference(const v1::UpdateSpec& spec, const std::vector<Tensor>& tensors,
                         const std::vector<std::vector<int64_t>>& cuts = {}) {
    Joined joined = SelectOn(world_size(), spec, tensors, cuts);
    EXPECT_OK(joined.status);
    if (!joined.status.ok()) return joined;
    const std::vector<Bitmask> expected = ReferenceMasks(spec, tensors);
    for (size_t t = 0; t < tensors.size(); ++t) {
      EXPECT_EQ(ToString(joined.masks[t]), ToString(expected[t])) << tensors[t].parameter.ShortDebugString();
    }
    return joined;
  }

  std::mt19937_64 random_{20240917};
};

// A model of every dtype and shape, sorted by name.
std::vector<Tensor> MakeModel(std::mt19937_64& random, bool specials, std::optional<v1::Dtype> only = std::nullopt) {
  std::vector<Tensor> tensors;
  for (const v1::Dtype dtype : kDtypes) {
    if (only.has_value() && dtype != *only) continue;
    for (const Shape& shape : kShapes) {
      tensors.push_back(MakeTensor("t" + std::to_string(100 + tensors.size()), dtype, shape));
      if (tensors.size() % 3 == 0) {
        FillWithBits(tensors.back(), random);
      } else {
        FillWithTies(tensors.back(), random, specials);
      }
    }
  }
  return tensors;
}

std::vector<int64_t> TargetsOf(const std::vector<Tensor>& tensors, double sparsity) {
  std::vector<int64_t> targets;
  for (const Tensor& tensor : tensors) {
    const auto k = static_cast<int64_t>(sparsity * static_cast<double>(tensor.size()));
    targets.push_back(std::max(k, ZeroOrMasked(tensor)));
  }
  return targets;
}

TEST_P(SelectTest, EachParameterAsBySorting) {
  const std::vector<Tensor> tensors = MakeModel(random_, true);
  for (const double sparsity : {0.0, 0.3, 0.5, 0.77, 0.99, 1.0}) {
    ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, TargetsOf(tensors, sparsity)), tensors);
  }
}

TEST_P(SelectTest, LargeParametersAsBySorting) {
  std::vector<Tensor> tensors;
  for (const v1::Dtype dtype : kDtypes) {
    for (const bool ties : {false, true}) {
      tensors.push_back(MakeTensor("t" + std::to_string(tensors.size()), dtype, kLargeShape));
      ties ? FillWithTies(tensors.back(), random_, true) : FillWithBits(tensors.back(), random_);
    }
  }
  std::vector<int64_t> targets = TargetsOf(tensors, 0.45);
  const Joined first = ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, targets), tensors);
  v1::UpdateSpec global = MakeSpec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, tensors, {tensors[0].size() * 5});
  ExpectReference(global, tensors);
  const std::vector<Tensor> floats = {tensors[4], tensors[5]};
  ExpectReference(MakeSpec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, floats, {tensors[0].size() + 3}), floats);
  for (size_t t = 0; t < tensors.size(); ++t) {
    tensors[t].current = first.masks[t];
    if (t % 3 != 0) ApplyTo(tensors[t], first.masks[t]);
    targets[t] += (tensors[t].size() - targets[t]) / 3;
  }
  ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, targets), tensors);
}

TEST_P(SelectTest, CountsOfOneAndOfNoneAndOfAll) {
  const std::vector<Tensor> tensors = MakeModel(random_, true);
  for (const int64_t count : {0, 1, 2}) {
    std::vector<int64_t> targets;
    for (const Tensor& tensor : tensors) targets.push_back(std::min(count, tensor.size()));
    ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, targets), tensors);
  }
  std::vector<int64_t> all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.size());
  const Joined joined = ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, all), tensors);
  int64_t nans = 0;
  for (const Tensor& tensor : tensors) {
    for (int64_t i = 0; i < tensor.size(); ++i) nans += tensor.At(i) != tensor.At(i);
  }
  EXPECT_GT(nans, 0);
  EXPECT_EQ(joined.pruned_nans, nans);
}

TEST_P(SelectTest, GloballyInOneDtypeAndInMixed) {
  for (const std::optional<v1::Dtype> only :
       {std::optional(v1::DTYPE_BF16), std::optional(v1::DTYPE_F32), std::optional<v1::Dtype>()}) {
    const std::vector<Tensor> tensors = MakeModel(random_, true, only);
    int64_t elements = 0;
    int64_t zeros = 0;
    for (const Tensor& tensor : tensors) {
      elements += tensor.size();
      zeros += ZeroOrMasked(tensor);
    }
    for (const int64_t target : {zeros, zeros + 1, elements / 2, elements - 5, elements}) {
      v1::UpdateSpec spec = MakeSpec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, tensors, {target});
      spec.set_allow_empty(true);
      const Joined joined = ExpectReference(spec, tensors);
      EXPECT_EQ(std::accumulate(joined.pruned.begin(), joined.pruned.end(), int64_t{0}), target);
    }
  }
}

// known-bugs 8
TEST_P(SelectTest, LaterMasksContainEarlierOnes) {
  std::vector<Tensor> tensors = MakeModel(random_, true);
  const Joined first =
      ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, TargetsOf(tensors, 0.4)), tensors);
  for (size_t t = 0; t < tensors.size(); ++t) {
    tensors[t].current = first.masks[t];
    ApplyTo(tensors[t], first.masks[t]);
  }
  const Joined second =
      ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, TargetsOf(tensors, 0.6)), tensors);
  for (size_t t = 0; t < tensors.size(); ++t) {
    for (int64_t i = 0; i < tensors[t].size(); ++i) {
      EXPECT_FALSE(tensors[t].Masked(i) && second.masks[t].Keeps(i));
    }
  }
  // known-bugs 10: the same target again changes no bit.
  for (size_t t = 0; t < tensors.size(); ++t) {
    tensors[t].current = second.masks[t];
    ApplyTo(tensors[t], second.masks[t]);
  }
  const Joined third = ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, second.pruned), tensors);
  EXPECT_EQ(third.masks, second.masks);
}

// Something wrote into masked elements: they still come first.
TEST_P(SelectTest, MaskedElementsComeFirstWhateverTheyHold) {
  std::vector<Tensor> tensors = MakeModel(random_, true);
  for (Tensor& tensor : tensors) {
    tensor.current = Bitmask(tensor.size());
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.current->Set(i, random_() % 3 != 0);
  }
  std::vector<int64_t> targets;
  for (const Tensor& tensor : tensors) targets.push_back(tensor.current->CountPruned());
  ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, targets), tensors);
  for (size_t t = 0; t < tensors.size(); ++t) targets[t] += (tensors[t].size() - targets[t]) / 2;
  ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, targets), tensors);
  ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, targets, /*monotone=*/false), tensors);
  v1::UpdateSpec global = MakeSpec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, tensors,
                                   {std::accumulate(targets.begin(), targets.end(), int64_t{0})});
  global.set_allow_empty(true);
  ExpectReference(global, tensors);
  v1::UpdateSpec constant = MakeSpec(v1::SELECTION_METHOD_CONSTANT, tensors, {});
  ExpectReference(constant, tensors);
}

TEST_P(SelectTest, SparseMlsRuleTakesAllTiesAndNoNan) {
  std::vector<Tensor> tensors = MakeModel(random_, true);
  for (const bool masked : {false, true}) {
    if (masked) {
      for (Tensor& tensor : tensors) {
        tensor.current = Bitmask(tensor.size());
        for (int64_t i = 0; i < tensor.size(); ++i) tensor.current->Set(i, tensor.At(i) != 0 || random_() % 2 == 0);
      }
    }
    for (const double sparsity : {0.0, 0.02, 0.3, 0.99, 1.0}) {
      std::vector<int64_t> targets;
      int64_t total = 0;
      for (const Tensor& tensor : tensors) {
        targets.push_back(static_cast<int64_t>(sparsity * static_cast<double>(tensor.size())));
        total += targets.back();
      }
      v1::UpdateSpec each = MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, targets);
      each.set_rule(v1::SELECTION_RULE_SPARSEML);
      EXPECT_EQ(ExpectReference(each, tensors).pruned_nans, 0);
      v1::UpdateSpec global = MakeSpec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, tensors, {total});
      global.set_rule(v1::SELECTION_RULE_SPARSEML);
      global.set_allow_empty(true);
      ExpectReference(global, tensors);
    }
  }
}

TEST_P(SelectTest, RangesMayCutRows) {
  for (const v1::Dtype dtype : kDtypes) {
    Tensor tensor = MakeTensor("w", dtype, {7, 30});
    FillWithTies(tensor, random_, true);
    std::vector<int64_t> cuts;
    for (int r = 1; r < world_size(); ++r) cuts.push_back(static_cast<int64_t>(random_() % 211));
    std::sort(cuts.begin(), cuts.end());
    ExpectReference(MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {101}), {tensor}, {cuts});
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, SelectTest, ::testing::Values(1, 2, 3, 4, 8));

// The same hash, so that a vote finds them alike, on every world size.
TEST(Select, HashDependsOnWhatIsSelectedAlone) {
  std::mt19937_64 random(3);
  std::vector<Tensor> tensors = MakeModel(random, true);
  const v1::UpdateSpec spec = MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, TargetsOf(tensors, 0.5));
  const Joined one = SelectOn(1, spec, tensors);
  EXPECT_EQ(SelectOn(3, spec, tensors).hash, one.hash);
  const v1::UpdateSpec other = MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, tensors, TargetsOf(tensors, 0.6));
  EXPECT_NE(SelectOn(1, other, tensors).hash, one.hash);
}

// known-bugs 11
TEST(Select, MagnitudeIgnoresTheSign) {
  const Tensor tensor = MakeTensor("w", v1::DTYPE_BF16, {2, 4}, {-9, 0.5, -8, 0.25, 0.125, -7, 0.5, -6});
  const Joined joined = SelectOn(1, MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {4}), {tensor});
  ASSERT_OK(joined.status);
  EXPECT_EQ(ToString(joined.masks[0]), "10100101");
}

TEST(Select, AmongEqualsTheLatestGoFirst) {
  const Tensor a = MakeTensor("a", v1::DTYPE_F32, {4}, {1, 1, -1, 1});
  const Tensor b = MakeTensor("b", v1::DTYPE_F32, {4}, {1, 2, 1, 3});
  const Joined each = SelectOn(2, MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {a, b}, {2, 1}), {a, b});
  ASSERT_OK(each.status);
  EXPECT_EQ(ToString(each.masks[0]), "1100");
  EXPECT_EQ(ToString(each.masks[1]), "1101");
  v1::UpdateSpec spec = MakeSpec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, {a, b}, {3});
  const Joined global = SelectOn(2, spec, {a, b});
  ASSERT_OK(global.status);
  EXPECT_EQ(ToString(global.masks[0]), "1000");
  EXPECT_EQ(ToString(global.masks[1]), "1111");
}

// known-bugs 12: more than 2^24 elements, counted exactly.
TEST(Select, CountsBeyondTheIntegersOfF32) {
  Tensor tensor = MakeTensor("w", v1::DTYPE_BF16, {4100, 4096});
  ASSERT_GT(tensor.size(), 16'777'216);
  std::mt19937_64 random(12);
  for (size_t i = 0; i < tensor.bytes.size(); i += 2) {
    const auto bits = static_cast<uint16_t>(0x3c00 + random() % 64);
    tensor.bytes[i] = static_cast<std::byte>(bits & 0xff);
    tensor.bytes[i + 1] = static_cast<std::byte>(bits >> 8);
  }
  const int64_t target = 16'777'217;
  const Joined joined = SelectOn(2, MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {target}), {tensor});
  ASSERT_OK(joined.status);
  EXPECT_EQ(joined.pruned[0], target);
  EXPECT_EQ(joined.masks[0].CountPruned(), target);
}

// known-bugs 19
TEST(Select, AGlobalTargetMustNotEmptyAParameter) {
  const Tensor big = MakeTensor("big", v1::DTYPE_F32, {4}, {5, 6, 7, 8});
  const Tensor tiny = MakeTensor("tiny", v1::DTYPE_F32, {4}, {0.5, 0.5, 0.25, 0.5});
  v1::UpdateSpec spec = MakeSpec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, {big, tiny}, {4});
  for (const int world_size : {1, 3}) {
    EXPECT_THAT(SelectOn(world_size, spec, {big, tiny}).status,
                HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE, ::testing::HasSubstr("tiny")));
  }
  spec.set_allow_empty(true);
  EXPECT_OK(SelectOn(3, spec, {big, tiny}).status);
}

TEST(Select, RefusesWhatCannotBe) {
  Tensor tensor = MakeTensor("w", v1::DTYPE_F32, {4}, {1, 2, 3, 4});
  for (const int64_t target : {-1, 5}) {
    EXPECT_THAT(SelectOn(2, MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {target}), {tensor}).status,
                HasReason(v1::ERROR_REASON_INVARIANT));
    EXPECT_THAT(SelectOn(2, MakeSpec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, {tensor}, {target}), {tensor}).status,
                HasReason(v1::ERROR_REASON_INVARIANT));
  }
  // A monotone update revives nothing.
  tensor.current = Bitmask(4, false);
  EXPECT_THAT(SelectOn(2, MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {3}), {tensor}).status,
              HasReason(v1::ERROR_REASON_INVARIANT, ::testing::HasSubstr("masked")));
  // known-bugs 51: never another dtype than the ones we know.
  Tensor bytes = MakeTensor("b", v1::DTYPE_F32, {4});
  bytes.parameter.set_dtype(v1::DTYPE_F8_E4M3);
  bytes.bytes.resize(4);
  EXPECT_THAT(SelectOn(2, MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {bytes}, {1}), {bytes}).status,
              HasReason(v1::ERROR_REASON_TARGET_UNPRUNABLE, ::testing::HasSubstr("F8_E4M3")));
}

// A rank whose shard is not in order must not leave the others alone in a collective.
TEST(Select, AnErrorOfOneRankReachesAll) {
  const Tensor tensor = MakeTensor("w", v1::DTYPE_F32, {4}, {1, 2, 3, 4});
  const v1::UpdateSpec spec = MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {2});
  ThreadGroup group(3);
  group.Run([&](Collective& collective) {
    collective.SetDeadline(absl::Seconds(5));
    SelectInput input{&tensor.parameter, RowShard(tensor.parameter.shape(), collective.rank(), 3), {}, nullptr};
    input.values =
        absl::MakeConstSpan(tensor.bytes)
            .subspan(static_cast<size_t>(input.range.begin) * 4, static_cast<size_t>(input.range.size()) * 4);
    if (collective.rank() == 1) input.values.remove_suffix(1);
    const absl::Status status = Select(spec, absl::MakeConstSpan(&input, 1), collective, 1).status();
    EXPECT_THAT(status, HasReason(v1::ERROR_REASON_INVARIANT,
                                  ::testing::HasSubstr(collective.rank() == 1 ? "bytes" : "rank 1")));
    EXPECT_OK(collective.Barrier({"after", 1}));
  });
}

// Shards that do not cover the parameter, as a stale layout gives them.
TEST(Select, RangesMustCoverTheParameter) {
  const Tensor tensor = MakeTensor("w", v1::DTYPE_F32, {4}, {1, 2, 3, 4});
  const v1::UpdateSpec spec = MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {2});
  SingleProcess group;
  const SelectInput half{&tensor.parameter, {0, 2}, absl::MakeConstSpan(tensor.bytes).first(8), nullptr};
  EXPECT_THAT(Select(spec, absl::MakeConstSpan(&half, 1), group, 1), HasReason(v1::ERROR_REASON_INVARIANT));
}

// 3 rounds of 256 bytes, what is masked, and the ties.
TEST(Select, ABf16ParameterCosts784BytesWhateverItsSize) {
  for (const int64_t rows : {8, 512}) {
    Tensor tensor = MakeTensor("w", v1::DTYPE_BF16, {rows, 128});
    std::mt19937_64 random(5);
    FillWithTies(tensor, random, false);
    const Joined joined =
        SelectOn(2, MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {tensor.size() / 2}), {tensor});
    ASSERT_OK(joined.status);
    const int64_t flags_of_ranks = 2 * 8;
    EXPECT_EQ(joined.bytes_sent, 768 + 8 + 8 + flags_of_ranks);
  }
}

TEST(CountForUpdate, CountsWhatBelongsToThePrunedSet) {
  Tensor tensor = MakeTensor("w", v1::DTYPE_F16, {2, 4}, {0, -0.0, 1, 2, 3, 4, 0, 5});
  SingleProcess alone;
  SelectInput input{&tensor.parameter, {0, 8}, tensor.bytes, nullptr};
  const v1::UpdateSpec spec = MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {1});
  EXPECT_EQ(*CountForUpdate(spec, absl::MakeConstSpan(&input, 1), alone, 1), std::vector<int64_t>{3});
  Bitmask current(8);
  current.Set(0, false);
  current.Set(7, false);
  input.current = &current;
  EXPECT_EQ(*CountForUpdate(spec, absl::MakeConstSpan(&input, 1), alone, 1), std::vector<int64_t>{4});
}

}  // namespace
}  // namespace espalier::testing
