#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/sparsification_service.pb.h"
#include "espalier/v1/worker_service.pb.h"

namespace espalier {

// Of all recipes of a run together.
inline constexpr int64_t kMaxRecipeBytes = int64_t{1} << 20;
inline constexpr int kMaxWorldSize = 1024;
inline constexpr int kMaxPageSize = 5000;

// A spec with its defaults filled in, or REQUEST_INVALID (field), LIMIT_EXCEEDED for recipes over kMaxRecipeBytes,
// WORKER_KIND for attached workers, PATH_NOT_ALLOWED for paths outside `roots` (when there are any; what links point to
// is the workers' business).
absl::StatusOr<v1::RunSpec> CompleteSpec(const v1::RunSpec& spec, const std::vector<std::string>& roots);

// All recipes of a spec, in order.
std::vector<v1::RecipeText> RecipesOf(const v1::RunSpec& spec);

// PATH_NOT_ALLOWED; REQUEST_INVALID for an empty or relative path.
absl::Status CheckPath(absl::string_view path, absl::string_view field, const std::vector<std::string>& roots);

// `given`, or `standard` for 0; REQUEST_INVALID below 0, `most` above it.
absl::StatusOr<int> PageSize(int given, int standard, int most);

// Page tokens: opaque to clients, "<kind>.<number>.<check>". `check` says what list the token belongs to.
std::string MakePageToken(absl::string_view kind, int64_t number, uint32_t check);
// The number; -1 for an empty token. REQUEST_INVALID for one that was not made by MakePageToken with `kind` and `check`.
absl::StatusOr<int64_t> ReadPageToken(absl::string_view token, absl::string_view kind, uint32_t check);

// The parameter of that name or alias, else PARAMETER_NOT_FOUND.
absl::StatusOr<const v1::Parameter*> FindParameter(const v1::ModelDescription& model, absl::string_view name);

// The gather of a range of elements, `end` 0 meaning all. REQUEST_INVALID for a range outside the parameter.
absl::StatusOr<v1::GatherParameter> GatherRange(const v1::Parameter& parameter, int64_t begin, int64_t end);

}  // namespace espalier
