#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace espalier {

// Reads an environment variable; nullopt where it is not set.
using EnvironmentFn = std::function<std::optional<std::string>(const char*)>;

// Host and local rank, e.g. node7-2, so that the workers of a launcher (torchrun, mpirun, srun) never fight for one name:
// LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID or SLURM_LOCALID, the first that is a number; 0 without any.
std::string DefaultWorkerName(absl::string_view host, const EnvironmentFn& environment);

// The closest name of [a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?: lower case, other characters become '-'. "worker" where
// nothing is left.
std::string SanitizeWorkerName(absl::string_view name);

}  // namespace espalier
