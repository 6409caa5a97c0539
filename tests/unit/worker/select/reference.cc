#include "tests/unit/worker/select/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/support/thread_collective.h"
#include "worker/shard/dtype.h"

namespace espalier::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Sign, exponent and mantissa by arithmetic.
double Decode(uint64_t bits, int exponent_bits, int mantissa_bits) {
  const uint64_t mantissa = bits & ((uint64_t{1} << mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits & ((uint64_t{1} << exponent_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * kInfinity : kNan;
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits);
  const auto whole = static_cast<double>(mantissa + (uint64_t{1} << mantissa_bits));
  return sign * std::ldexp(whole, exponent - bias - mantissa_bits);
}

struct Encoding {
  int exponent_bits;
  int mantissa_bits;
};

Encoding EncodingOf(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_BF16:
      return {8, 7};
    case v1::DTYPE_F16:
      return {5, 10};
    case v1::DTYPE_F32:
      return {8, 23};
    default:
      return {11, 52};
  }
}

uint64_t Bits(const Tensor& tensor, int64_t i) {
  const auto width = static_cast<size_t>(DtypeSize(tensor.parameter.dtype()));
  uint64_t bits = 0;
  std::memcpy(&bits, tensor.bytes.data() + static_cast<size_t>(i) * width, width);
  return bits;
}

void SetBits(Tensor& tensor, int64_t i, uint64_t bits) {
  const auto width = static_cast<size_t>(DtypeSize(tensor.parameter.dtype()));
  std::memcpy(tensor.bytes.data() + static_cast<size_t>(i) * width, &bits, width);
}

// The bits of a value that the dtype holds exactly.
uint64_t Encode(double value, const Encoding& to) {
  const uint64_t sign = uint64_t{std::signbit(value)} << (to.exponent_bits + to.mantissa_bits);
  const uint64_t infinity = ((uint64_t{1} << to.exponent_bits) - 1) << to.mantissa_bits;
  if (std::isnan(value)) return sign | infinity | 1;
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  const int bias = (1 << (to.exponent_bits - 1)) - 1;
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1 + bias, 0);
  const double scaled = std::ldexp(std::fabs(value), -(std::max(exponent, 1) - bias - to.mantissa_bits));
  uint64_t mantissa = static_cast<uint64_t>(scaled);
  EXPECT_EQ(static_cast<double>(mantissa), scaled) << value << " does not fit the dtype";
  if (exponent > 0) mantissa -= uint64_t{1} << to.mantissa_bits;
  return sign | static_cast<uint64_t>(exponent) << to.mantissa_bits | mantissa;
}

// An element in the documented order.
struct Item {
  bool first;
  bool nan;
  double magnitude;
  size_t tensor;  // in the order of names
  int64_t index;

  bool operator<(const Item& other) const {
    if (first != other.first) return first;
    if (first) return std::pair(tensor, -index) < std::pair(other.tensor, -other.index);
    if (nan != other.nan) return other.nan;
    if (!nan && magnitude != other.magnitude) return magnitude < other.magnitude;
    return std::pair(tensor, -index) < std::pair(other.tensor, -other.index);
  }
};

Item ItemAt(const v1::UpdateSpec& spec, const std::vector<Tensor>& tensors, size_t t, int64_t i) {
  const double value = tensors[t].At(i);
  return {spec.monotone() && tensors[t].Masked(i), std::isnan(value), std::fabs(value), t, i};
}

void PruneFirst(std::vector<Item>& items, int64_t count, const v1::UpdateSpec& spec, std::vector<Bitmask>& masks) {
  std::sort(items.begin(), items.end());
  const bool by_sparseml = spec.rule() == v1::SELECTION_RULE_SPARSEML;
  for (size_t i = 0; i < items.size(); ++i) {
    bool prune = static_cast<int64_t>(i) < count;
    if (by_sparseml) {
      // Masked elements are zeros to the peer; everything not above the count-th smallest goes, and no NaN.
      const auto magnitude = [&](size_t j) {
        return items[j].first ? 0 : items[j].nan ? kInfinity : items[j].magnitude;
      };
      prune =
          items[i].first || (count > 0 && !items[i].nan && magnitude(i) <= magnitude(static_cast<size_t>(count - 1)));
    }
    if (prune) masks[items[i].tensor].Set(items[i].index, false);
  }
}

}  // namespace

int64_t Tensor::size() const {
  return NumElements(parameter.shape());
}

double Tensor::At(int64_t i) const {
  const Encoding from = EncodingOf(parameter.dtype());
  return Decode(Bits(*this, i), from.exponent_bits, from.mantissa_bits);
}

Tensor MakeTensor(const std::string& name, v1::Dtype dtype, const std::vector<int64_t>& shape) {
  Tensor tensor;
  tensor.parameter.set_name(name);
  tensor.parameter.set_dtype(dtype);
  for (const int64_t d : shape) tensor.parameter.add_shape(d);
  tensor.parameter.set_layer_kind(v1::LAYER_KIND_LINEAR);
  tensor.parameter.set_input_dimension(shape.size() == 2 ? 1 : -1);
  tensor.bytes.resize(static_cast<size_t>(tensor.size() * DtypeSize(dtype)));
  return tensor;
}

Tensor MakeTensor(const std::string& name, v1::Dtype dtype, const std::vector<int64_t>& shape,
                  const std::vector<double>& values) {
  Tensor tensor = MakeTensor(name, dtype, shape);
  EXPECT_EQ(static_cast<int64_t>(values.size()), tensor.size());
  for (size_t i = 0; i < values.size(); ++i) {
    SetBits(tensor, static_cast<int64_t>(i), Encode(values[i], EncodingOf(dtype)));
  }
  return tensor;
}

void FillWithTies(Tensor& tensor, std::mt19937_64& random, bool specials) {
  const Encoding to = EncodingOf(tensor.parameter.dtype());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto choice = random() % 40;
    double value = static_cast<double>(random() % 9) / 8;  // 0 and eighths
    if (specials && choice == 0) value = kInfinity;
    if (specials && choice == 1) value = kNan;
    if (choice == 2) value = std::ldexp(1.0, 1 - ((1 << (to.exponent_bits - 1)) - 1) - to.mantissa_bits);  // denormal
    uint64_t bits = Encode(random() % 2 == 0 ? value : -value, to);
    if (std::isnan(value)) bits |= random() % 4 << 1;
    SetBits(tensor, i, bits);
  }
}

void FillWithBits(Tensor& tensor, std::mt19937_64& random) {
  const Encoding to = EncodingOf(tensor.parameter.dtype());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    do {
      SetBits(tensor, i, random() >> (63 - to.exponent_bits - to.mantissa_bits));
    } while (std::isnan(tensor.At(i)));
  }
}

void ApplyTo(Tensor& tensor, const Bitmask& mask) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (!mask.Keeps(i)) SetBits(tensor, i, 0);
  }
}

v1::UpdateSpec MakeSpec(v1::SelectionMethod method, const std::vector<Tensor>& tensors,
                        const std::vector<int64_t>& targets, bool monotone) {
  v1::UpdateSpec spec;
  spec.set_version(1);
  spec.set_method(method);
  spec.set_rule(v1::SELECTION_RULE_EXACT);
  spec.set_monotone(monotone);
  for (const Tensor& tensor : tensors) spec.add_parameters(tensor.parameter.name());
  for (const int64_t target : targets) spec.add_targets(target);
  return spec;
}

int64_t ZeroOrMasked(const Tensor& tensor) {
  int64_t count = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) count += tensor.Masked(i) || tensor.At(i) == 0;
  return count;
}

std::vector<Bitmask> ReferenceMasks(const v1::UpdateSpec& spec, const std::vector<Tensor>& tensors) {
  std::vector<Bitmask> masks;
  for (const Tensor& tensor : tensors) masks.emplace_back(tensor.size());
  std::vector<Item> items;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const Tensor& tensor = tensors[t];
    if (spec.method() == v1::SELECTION_METHOD_N_OF_M) {
      // Groups along the input: within a row, or down a column.
      const int64_t m = spec.structure().m();
      const bool down = tensor.parameter.input_dimension() == 0;
      const int64_t row = RowElements(tensor.parameter.shape());
      for (int64_t start = 0; start < tensor.size(); ++start) {
        if ((down ? start / row : start) % m != 0) continue;
        int64_t go = 0;
        for (int64_t j = 0; j < m; ++j) {
          items.push_back(ItemAt(spec, tensors, t, start + j * (down ? row : 1)));
          go += items.back().first || items.back().magnitude == 0;
        }
        PruneFirst(items, std::max<int64_t>(go, m - spec.structure().n()), spec, masks);
        items.clear();
      }
      continue;
    }
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (spec.method() == v1::SELECTION_METHOD_CONSTANT) {
        if (tensor.Masked(i) || tensor.At(i) == 0) masks[t].Set(i, false);
      } else {
        items.push_back(ItemAt(spec, tensors, t, i));
      }
    }
    if (spec.method() == v1::SELECTION_METHOD_MAGNITUDE) {
      PruneFirst(items, spec.targets(static_cast<int>(t)), spec, masks);
      items.clear();
    }
  }
  if (spec.method() == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE) PruneFirst(items, spec.targets(0), spec, masks);
  return masks;
}

Joined SelectOn(int world_size, const v1::UpdateSpec& spec, const std::vector<Tensor>& tensors,
                const std::vector<std::vector<int64_t>>& cuts) {
  const auto world = static_cast<size_t>(world_size);
  std::vector<std::vector<ShardRange>> ranges(world);
  std::vector<absl::StatusOr<std::vector<int64_t>>> counts(world, absl::UnknownError("not run"));
  std::vector<absl::StatusOr<Selection>> selections(world, absl::UnknownError("not run"));
  for (size_t r = 0; r < world; ++r) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (cuts.empty()) {
        ranges[r].push_back(RowShard(tensors[t].parameter.shape(), static_cast<int>(r), world_size));
      } else {
        ranges[r].push_back({r == 0 ? 0 : cuts[t][r - 1], r + 1 == world ? tensors[t].size() : cuts[t][r]});
      }
    }
  }
  Joined joined;
  ThreadGroup group(world_size);
  group.Run([&](Collective& collective) {
    const auto r = static_cast<size_t>(collective.rank());
    std::vector<Bitmask> current(tensors.size());
    std::vector<SelectInput> inputs(tensors.size());
    for (size_t t = 0; t < tensors.size(); ++t) {
      const ShardRange range = ranges[r][t];
      const auto width = static_cast<size_t>(DtypeSize(tensors[t].parameter.dtype()));
      inputs[t].parameter = &tensors[t].parameter;
      inputs[t].range = range;
      inputs[t].values =
          absl::MakeConstSpan(tensors[t].bytes)
              .subspan(static_cast<size_t>(range.begin) * width, static_cast<size_t>(range.size()) * width);
      if (!tensors[t].current.has_value()) continue;
      current[t] = Bitmask(range.size());
      for (int64_t i = 0; i < range.size(); ++i) current[t].Set(i, tensors[t].current->Keeps(range.begin + i));
      inputs[t].current = &current[t];
    }
    counts[r] = CountForUpdate(spec, inputs, collective, 6);
    selections[r] = Select(spec, inputs, collective, 7);
  });
  for (const auto& selection : selections) {
    if (!selection.ok() && joined.status.ok()) joined.status = selection.status();
    EXPECT_EQ(selection.status().code(), selections[0].status().code());
  }
  if (!joined.status.ok()) return joined;
  joined.counted.resize(tensors.size());
  for (const auto& count : counts) {
    EXPECT_TRUE(count.ok()) << count.status();
    for (size_t t = 0; count.ok() && t < tensors.size(); ++t) joined.counted[t] += (*count)[t];
  }
  joined.pruned = selections[0]->pruned;
  joined.hash = selections[0]->hash;
  joined.bytes_sent = group.rank(0).bytes_sent();
  for (size_t t = 0; t < tensors.size(); ++t) joined.masks.emplace_back(tensors[t].size());
  for (size_t r = 0; r < world; ++r) {
    EXPECT_EQ(selections[r]->pruned, joined.pruned);
    EXPECT_EQ(selections[r]->hash, joined.hash);
    joined.pruned_nans += selections[r]->pruned_nans;
    for (size_t t = 0; t < tensors.size(); ++t) {
      const Bitmask& part = selections[r]->masks[t];
      EXPECT_EQ(part.size(), ranges[r][t].size());
      for (int64_t i = 0; i < part.size(); ++i) joined.masks[t].Set(ranges[r][t].begin + i, part.Keeps(i));
    }
  }
  for (size_t t = 0; t < tensors.size(); ++t) EXPECT_EQ(joined.pruned[t], joined.masks[t].CountPruned());
  return joined;
}

std::string ToString(const Bitmask& mask) {
  std::string text;
  for (int64_t i = 0; i < mask.size(); ++i) text += mask.Keeps(i) ? '1' : '0';
  return text;
}

}  // namespace espalier::testing
