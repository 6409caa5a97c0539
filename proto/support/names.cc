#include "proto/support/names.h"

#include <algorithm>
#include <array>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

constexpr std::array<absl::string_view, 4> kWrapperTokens = {"_fsdp_wrapped_module", "_forward_module", "_orig_mod",
                                                             "_checkpoint_wrapped_module"};
constexpr absl::string_view kModule = "module.";

}  // namespace

std::string RunName(absl::string_view run_id) {
  return absl::StrCat("runs/", run_id);
}
std::string WorkerName(absl::string_view worker_id) {
  return absl::StrCat("workers/", worker_id);
}
std::string OperationName(absl::string_view run_name, absl::string_view operation_id) {
  return absl::StrCat(run_name, "/operations/", operation_id);
}

bool IsValidId(absl::string_view id) {
  const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !id.empty() && id.size() <= 63 && alnum(id.front()) && alnum(id.back()) &&
         std::all_of(id.begin(), id.end(), [&](char c) { return alnum(c) || c == '.' || c == '-'; });
}

absl::StatusOr<std::string> ParseRunName(absl::string_view name) {
  const absl::string_view id = absl::StripPrefix(name, "runs/");
  if (IsValidId(id)) return std::string(id);
  return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                   absl::StrCat("\"", name.substr(0, 200), "\" is not the name of a run; write runs/{run}"),
                   {{"field", "name"}});
}

absl::StatusOr<std::pair<std::string, std::string>> ParseOperationName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  if (parts.size() == 4 && parts[0] == "runs" && parts[2] == "operations" && IsValidId(parts[1]) &&
      IsValidId(parts[3])) {
    return std::pair(RunName(parts[1]), std::string(parts[3]));
  }
  return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                   absl::StrCat("\"", name.substr(0, 200),
                                "\" is not the name of an operation; write runs/{run}/operations/{operation}"),
                   {{"field", "name"}});
}

std::string StripWrapperTokens(absl::string_view parameter) {
  std::vector<absl::string_view> parts = absl::StrSplit(parameter, '.');
  std::erase_if(parts, [](absl::string_view part) {
    return std::find(kWrapperTokens.begin(), kWrapperTokens.end(), part) != kWrapperTokens.end();
  });
  return absl::StrJoin(parts, ".");
}

absl::StatusOr<std::vector<std::string>> CanonicalNames(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  out.reserve(names.size());
  for (const std::string& name : names) out.push_back(StripWrapperTokens(name));
  const auto has_prefix = [](const std::string& name) {
    return absl::StartsWith(name, kModule) && name.size() > kModule.size();
  };
  while (!out.empty() && std::all_of(out.begin(), out.end(), has_prefix)) {
    for (std::string& name : out) name.erase(0, kModule.size());
  }
  absl::flat_hash_map<absl::string_view, size_t> seen;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto [it, inserted] = seen.try_emplace(out[i], i);
    if (inserted && !out[i].empty()) continue;
    return MakeError(v1::ERROR_REASON_CHECKPOINT_INVALID,
                     absl::StrCat("tensors \"", names[it->second], "\" and \"", names[i], "\" have the same name \"",
                                  out[i], "\" without the tokens of wrappers; rename one"),
                     {{"tensor", names[i]}, {"what", "two names become one"}});
  }
  return out;
}

}  // namespace espalier
