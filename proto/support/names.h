#pragma once

// Names of resources (runs/{run}) and of parameters (canonical, without the tokens of wrappers).

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier {

std::string RunName(absl::string_view run_id);                                          // runs/{run}
std::string WorkerName(absl::string_view worker_id);                                    // workers/{worker}
std::string OperationName(absl::string_view run_name, absl::string_view operation_id);  // {run}/operations/{op}

// The id of runs/{run}; a bare id is accepted too, since people type it. REQUEST_INVALID otherwise.
absl::StatusOr<std::string> ParseRunName(absl::string_view name);
// The run's name (first) and the operation's id (second) of runs/{run}/operations/{operation}. REQUEST_INVALID.
absl::StatusOr<std::pair<std::string, std::string>> ParseOperationName(absl::string_view name);

// [a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?
bool IsValidId(absl::string_view id);

// The parameter's name without wrapper tokens (_fsdp_wrapped_module, _forward_module, _orig_mod,
// _checkpoint_wrapped_module), wherever they stand between dots and however often. Nothing else is touched.
std::string StripWrapperTokens(absl::string_view parameter);

// Canonical names of all parameters of one model, in the given order: tokens stripped, and a leading `module.` removed
// when every name has it (as often as every name has it). CHECKPOINT_INVALID when two names become one.
absl::StatusOr<std::vector<std::string>> CanonicalNames(const std::vector<std::string>& names);

}  // namespace espalier
