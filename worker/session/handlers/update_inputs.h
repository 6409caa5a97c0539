#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/v1/worker_service.pb.h"
#include "worker/mask/mask_table.h"
#include "worker/select/select.h"
#include "worker/shard/shard_table.h"

namespace espalier {

// The shards of one update, looked up once, and what Select wants of them. Holds the storages, so that its spans live as
// long as it does - and says nothing about what the table holds afterwards.
class UpdateInputs {
 public:
  // PARAMETER_NOT_FOUND. The same on all ranks, since tables hold the same names.
  static absl::StatusOr<UpdateInputs> LookUp(const v1::UpdateSpec& spec, const ShardTable& shards,
                                             const MaskTable& masks);

  absl::Span<const SelectInput> inputs() const { return inputs_; }
  size_t size() const { return shards_.size(); }
  const Shard& shard(size_t i) const { return shards_[i]; }

 private:
  std::vector<Shard> shards_;
  std::vector<std::shared_ptr<const Bitmask>> masks_;
  std::vector<SelectInput> inputs_;
};

}  // namespace espalier
