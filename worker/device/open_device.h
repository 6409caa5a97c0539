#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/accelerator.h"

namespace espalier {

// What --device names. "cpu": null. "cuda:N": that GPU. "cuda": the one with this process's number on its machine, if its
// launcher gave one, counted round where it sees fewer.
//
// Errors: REQUEST_INVALID (not such a name; a build without CUDA; no such GPU).
absl::StatusOr<std::unique_ptr<Accelerator>> OpenDevice(absl::string_view name, std::optional<int64_t> local_rank);

}  // namespace espalier
