#include "server/run/requests.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "server/recipe/planner.h"

namespace espalier {
namespace {

constexpr size_t kMaxPathBytes = 4096;

absl::Status Invalid(absl::string_view field, absl::string_view what) {
  return MakeError(v1::ERROR_REASON_REQUEST_INVALID, absl::StrCat(field, ": ", what), {{"field", std::string(field)}});
}

absl::Status CheckRecipes(const v1::RunSpec& spec) {
  if (spec.then_size() >= kMaxRecipes) {
    return Invalid("spec.then", absl::StrCat(spec.then_size() + 1, " recipes, at most ", kMaxRecipes));
  }
  int64_t bytes = 0;
  int index = -1;
  for (const v1::RecipeText& text : RecipesOf(spec)) {
    const std::string field = index < 0 ? "spec." : absl::StrCat("spec.then[", index, "].");
    ++index;
    if (text.recipe().empty()) return Invalid(field + "recipe", "is missing");
    if (text.recipe_name().size() > kMaxPathBytes) return Invalid(field + "recipe_name", "is longer than 4096 bytes");
    bytes += static_cast<int64_t>(text.recipe().size());
    if (bytes <= kMaxRecipeBytes) continue;
    return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                     absl::StrCat(field, "recipe: ", index == 0 ? "" : "with those before ", bytes, " bytes, at most ",
                                  kMaxRecipeBytes),
                     {{"limit", absl::StrCat(kMaxRecipeBytes)}, {"value", absl::StrCat(bytes)}});
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<v1::RecipeText> RecipesOf(const v1::RunSpec& spec) {
  std::vector<v1::RecipeText> out(1);
  out[0].set_recipe(spec.recipe());
  out[0].set_recipe_name(spec.recipe_name());
  out.insert(out.end(), spec.then().begin(), spec.then().end());
  return out;
}

absl::Status CheckPath(absl::string_view path, absl::string_view field, const std::vector<std::string>& roots) {
  if (path.empty()) return Invalid(field, "is missing");
  if (path.size() > kMaxPathBytes) return Invalid(field, "is longer than 4096 bytes");
  if (absl::StrContains(path, absl::string_view("\0", 1))) return Invalid(field, "holds a zero byte");
  if (path[0] != '/') {
    return Invalid(field, absl::StrCat("'", path, "' is relative; give an absolute path, as the workers see it"));
  }
  if (roots.empty()) return absl::OkStatus();
  const std::filesystem::path normal = std::filesystem::path(std::string(path)).lexically_normal();
  for (const std::string& root : roots) {
    const std::filesystem::path base = std::filesystem::path(root).lexically_normal();
    const auto [end, _] = std::mismatch(base.begin(), base.end(), normal.begin(), normal.end());
    // A trailing slash makes an empty last component.
    if (end == base.end() || (end->empty() && std::next(end) == base.end())) return absl::OkStatus();
  }
  return MakeError(v1::ERROR_REASON_PATH_NOT_ALLOWED,
                   absl::StrCat(field, ": '", path, "' is outside the allowed roots (", absl::StrJoin(roots, ", "),
                                "); start the coordinator with another --model-root to allow it"),
                   {{"path", std::string(path)}});
}

absl::StatusOr<v1::RunSpec> CompleteSpec(const v1::RunSpec& spec, const std::vector<std::string>& roots) {
  v1::RunSpec out = spec;
  ESPALIER_RETURN_IF_ERROR(CheckRecipes(spec));
  if (out.recipe_name().empty()) out.set_recipe_name("recipe");
  for (int i = 0; i < out.then_size(); ++i) {
    if (out.then(i).recipe_name().empty()) out.mutable_then(i)->set_recipe_name(absl::StrCat("recipe ", i + 2));
  }
  ESPALIER_RETURN_IF_ERROR(CheckPath(spec.model_path(), "spec.model_path", roots));
  if (!spec.output_path().empty()) {
    ESPALIER_RETURN_IF_ERROR(CheckPath(spec.output_path(), "spec.output_path", roots));
  }
  switch (spec.worker_kind()) {
    case v1::WORKER_KIND_UNSPECIFIED:
      out.set_worker_kind(v1::WORKER_KIND_CHECKPOINT);
      break;
    case v1::WORKER_KIND_CHECKPOINT:
      break;
    case v1::WORKER_KIND_ATTACHED:
      return MakeError(v1::ERROR_REASON_WORKER_KIND,
                       "spec.worker_kind: attached workers are not served by this coordinator; use checkpoint workers",
                       {{"kind", "ATTACHED"}});
    default:
      return Invalid("spec.worker_kind", "is unknown");
  }
  if (spec.world_size() < 0 || spec.world_size() > kMaxWorldSize) {
    return Invalid("spec.world_size", absl::StrCat(spec.world_size(), " is not in [1, ", kMaxWorldSize, "]"));
  }
  if (spec.world_size() == 0) out.set_world_size(1);
  if (spec.has_hold_timeout()) {
    if (!spec.hold()) return Invalid("spec.hold_timeout", "has no effect without hold");
    using google::protobuf::util::TimeUtil;
    const int64_t seconds = spec.hold_timeout().seconds();
    if (seconds < 0 || seconds > 30 * 86400 || TimeUtil::DurationToNanoseconds(spec.hold_timeout()) <= 0) {
      return Invalid("spec.hold_timeout", "must be positive and at most 30 days");
    }
  }
  if (spec.max_shard_bytes() < 0) return Invalid("spec.max_shard_bytes", "is negative");
  if (!v1::CheckpointFormat_IsValid(spec.output_format())) return Invalid("spec.output_format", "is unknown");
  return out;
}

absl::StatusOr<int> PageSize(int given, int standard, int most) {
  if (given < 0) return Invalid("page_size", "is negative");
  return given == 0 ? standard : std::min(given, most);
}

std::string MakePageToken(absl::string_view kind, int64_t number, uint32_t check) {
  return absl::StrCat(kind, ".", number, ".", absl::Hex(check, absl::kZeroPad8));
}

absl::StatusOr<int64_t> ReadPageToken(absl::string_view token, absl::string_view kind, uint32_t check) {
  if (token.empty()) return -1;
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  int64_t number = 0;
  if (parts.size() != 3 || parts[0] != kind || !absl::SimpleAtoi(parts[1], &number) || number < 0 ||
      token != MakePageToken(kind, number, check)) {
    return Invalid("page_token", "is not one of this list, or the list has changed; begin again without a token");
  }
  return number;
}

absl::StatusOr<const v1::Parameter*> FindParameter(const v1::ModelDescription& model, absl::string_view name) {
  for (const v1::Parameter& parameter : model.parameters()) {
    if (parameter.name() == name) return &parameter;
    if (std::find(parameter.aliases().begin(), parameter.aliases().end(), name) != parameter.aliases().end()) {
      return &parameter;
    }
  }
  return MakeError(v1::ERROR_REASON_PARAMETER_NOT_FOUND,
                   absl::StrCat("the model has no parameter '", name.substr(0, 500), "'; its report lists them all"),
                   {{"parameter", std::string(name.substr(0, 400))}});
}

absl::StatusOr<v1::GatherParameter> GatherRange(const v1::Parameter& parameter, int64_t begin, int64_t end) {
  int64_t elements = 1;
  for (const int64_t d : parameter.shape()) elements *= d;
  const int64_t to = end == 0 ? elements : end;
  if (begin < 0 || to < begin || to > elements) {
    return Invalid("end", absl::StrCat("elements [", begin, ", ", end, ") of ", parameter.name(),
                                       " do not exist; it has ", elements));
  }
  v1::GatherParameter op;
  op.set_parameter(parameter.name());
  op.set_begin(begin);
  op.set_end(to);
  return op;
}

}  // namespace espalier
