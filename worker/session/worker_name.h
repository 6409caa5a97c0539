#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace espalier {

// Reads an environment variable; nullopt where it is not set.
using EnvironmentFn = std::function<std::optional<std::string>(const char*)>;

// Number of this process among those that a launcher (torchrun, mpirun, srun) started on this machine: LOCAL_RANK,
// OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID or SLURM_LOCALID, the first that is a number.
std::optional<int64_t> LocalRank(const EnvironmentFn& environment);

// Host and local rank, e.g. node7-2, so that the workers of a launcher never fight for one name, and one that is started again
// takes the place of the one before. Without a local rank, host and `process`.
std::string DefaultWorkerName(absl::string_view host, const EnvironmentFn& environment, absl::string_view process);

// Tells this process from all others of the machine, also from those in other containers, and stays over execve: its id and
// when it started, e.g. p4711-9a3f21.
std::string ProcessMark();

// The closest name of [a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?: lower case, other characters become '-'. "worker" where
// nothing is left.
std::string SanitizeWorkerName(absl::string_view name);

}  // namespace espalier
