#pragma once

// What LibTorch does for the same work, one thread. LibTorch's headers stay in the .cc.

#include <cstdint>
#include <functional>
#include <memory>

#include "espalier/v1/model.pb.h"
#include "worker/mask/bitmask.h"
#include "worker/shard/storage.h"

namespace espalier::bench {

// `weight * mask` with a mask of bools, into a new tensor.
std::function<void()> TorchMultiply(v1::Dtype dtype, const std::shared_ptr<Storage>& shard, const Bitmask& mask);

// torch.count_nonzero.
std::function<int64_t()> TorchCountNonzero(v1::Dtype dtype, const std::shared_ptr<Storage>& shard);

}  // namespace espalier::bench
