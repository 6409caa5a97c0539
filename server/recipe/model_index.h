#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/model.pb.h"

namespace espalier {

// The parameters of a model by all of their names. Parameters are known by their position in the description. Immutable,
// thread-safe.
class ModelIndex {
 public:
  // `model` must outlive the index. CHECKPOINT_INVALID for a shape that is negative or has more than 2^62 elements (all
  // parameters together, too), and for a name that comes twice.
  static absl::StatusOr<ModelIndex> Make(const v1::ModelDescription& model);

  const v1::ModelDescription& model() const { return *model_; }
  int size() const { return model_->parameters_size(); }
  const v1::Parameter& at(int position) const { return model_->parameters(position); }
  int64_t numel(int position) const { return numel_[static_cast<size_t>(position)]; }
  int64_t total() const { return total_; }

  // Position of the parameter with this name or alias; -1 without.
  int Find(absl::string_view name) const;

  // The name and the aliases.
  std::vector<absl::string_view> NamesOf(int position) const;

  // Elements along which the N:M groups of one row run; 0 where the input dimension is unknown.
  int64_t RowLength(int position) const;

  // The name nearest to one that is not there: the same behind a prefix, else by edit distance. Empty without. Costs a
  // pass over the model.
  std::string Nearest(absl::string_view name) const;

 private:
  const v1::ModelDescription* model_ = nullptr;
  std::vector<int64_t> numel_;
  int64_t total_ = 0;
  absl::flat_hash_map<absl::string_view, int> by_name_;
};

// F64, F32, F16, BF16.
bool CanPrune(v1::Dtype dtype);

// "BF16".
std::string DtypeText(v1::Dtype dtype);

// Layer of a `.weight`: the name without it; empty for other names.
absl::string_view ModuleOf(absl::string_view name);

}  // namespace espalier
