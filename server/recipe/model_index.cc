#include "server/recipe/model_index.h"

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/errors.h"
#include "server/recipe/problems.h"

namespace espalier {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 62;
constexpr absl::string_view kWeight = ".weight";

// Product of the dimensions; -1 when it is no number of elements.
int64_t Elements(const v1::Parameter& parameter) {
  int64_t elements = 1;
  bool empty = false;
  for (const int64_t dimension : parameter.shape()) {
    if (dimension < 0) return -1;
    empty = empty || dimension == 0;
  }
  if (empty) return 0;
  for (const int64_t dimension : parameter.shape()) {
    if (elements > kMaxElements / dimension) return -1;
    elements *= dimension;
  }
  return elements;
}

absl::Status Invalid(const std::string& tensor, absl::string_view what) {
  return MakeError(v1::ERROR_REASON_CHECKPOINT_INVALID, absl::StrCat("tensor ", Quote(tensor), ": ", what),
                   {{"tensor", Shorten(tensor, 120)}, {"what", std::string(what)}});
}

}  // namespace

absl::StatusOr<ModelIndex> ModelIndex::Make(const v1::ModelDescription& model) {
  ModelIndex out;
  out.model_ = &model;
  out.numel_.reserve(static_cast<size_t>(model.parameters_size()));
  for (int i = 0; i < model.parameters_size(); ++i) {
    const v1::Parameter& parameter = model.parameters(i);
    const int64_t elements = Elements(parameter);
    if (elements < 0 || elements > kMaxElements - out.total_) {
      return Invalid(parameter.name(), "its shape is not one of a tensor that fits anywhere");
    }
    out.numel_.push_back(elements);
    out.total_ += elements;
    for (const absl::string_view name : out.NamesOf(i)) {
      if (!out.by_name_.emplace(name, i).second) return Invalid(std::string(name), "the name comes twice in the model");
    }
  }
  return out;
}

int ModelIndex::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : found->second;
}

std::vector<absl::string_view> ModelIndex::NamesOf(int position) const {
  const v1::Parameter& parameter = at(position);
  std::vector<absl::string_view> names = {parameter.name()};
  names.insert(names.end(), parameter.aliases().begin(), parameter.aliases().end());
  return names;
}

int64_t ModelIndex::RowLength(int position) const {
  const v1::Parameter& parameter = at(position);
  const int dimension = parameter.input_dimension();
  if (dimension < 0 || dimension >= parameter.shape_size() || parameter.shape_size() < 2) return 0;
  // [in, out]: a group runs down a column.
  if (dimension == 0) return parameter.shape(0);
  // [out, in, kernel...]: the row is the flattened rest.
  int64_t length = 1;
  for (int i = dimension; i < parameter.shape_size(); ++i) length *= parameter.shape(i);
  return length;
}

std::string ModelIndex::Nearest(absl::string_view name) const {
  std::string best;
  size_t best_excess = std::numeric_limits<size_t>::max();
  std::vector<std::string> candidates;
  for (int i = 0; i < size(); ++i) {
    for (const absl::string_view full : NamesOf(i)) {
      const absl::string_view module = ModuleOf(full);
      for (const absl::string_view candidate : {full, module}) {
        if (candidate.empty()) continue;
        if (absl::EndsWith(candidate, absl::StrCat(".", name)) && candidate.size() - name.size() < best_excess) {
          best = std::string(candidate);
          best_excess = candidate.size() - name.size();
        }
        candidates.emplace_back(candidate);
      }
    }
  }
  return best.empty() ? ClosestName(name, candidates) : best;
}

bool CanPrune(v1::Dtype dtype) {
  return dtype == v1::DTYPE_F64 || dtype == v1::DTYPE_F32 || dtype == v1::DTYPE_F16 || dtype == v1::DTYPE_BF16;
}

std::string DtypeText(v1::Dtype dtype) {
  return std::string(absl::StripPrefix(v1::Dtype_Name(dtype), "DTYPE_"));
}

absl::string_view ModuleOf(absl::string_view name) {
  return absl::EndsWith(name, kWeight) ? absl::StripSuffix(name, kWeight) : absl::string_view();
}

}  // namespace espalier
