#include "worker/checkpoint/path_roots.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier {
namespace {

absl::Status NotAllowed(absl::string_view path, absl::string_view why) {
  return MakeError(v1::ERROR_REASON_PATH_NOT_ALLOWED, absl::StrCat(path, ": ", why), {{"path", std::string(path)}});
}

// nullopt with errno set.
std::optional<std::string> RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> resolved(realpath(path.c_str(), nullptr), &free);
  if (resolved == nullptr) return std::nullopt;
  return std::string(resolved.get());
}

}  // namespace

absl::StatusOr<PathRoots> PathRoots::Create(const std::vector<std::string>& directories) {
  PathRoots out;
  for (const std::string& directory : directories) {
    const auto resolved = RealPath(directory);
    if (!resolved) {
      return NotAllowed(directory, absl::StrCat("cannot be an allowed directory: ", std::strerror(errno)));
    }
    out.roots_.push_back(*resolved);
  }
  return out;
}

absl::StatusOr<std::string> PathRoots::Resolve(absl::string_view path) const {
  if (path.empty() || absl::StrContains(path, '\0')) {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                     "the path is empty or holds a NUL; give the path of a file or a directory", {{"field", "path"}});
  }
  std::error_code error;
  const std::filesystem::path given = std::filesystem::absolute(std::string(path), error);
  if (error) return NotAllowed(path, absl::StrCat("cannot be made absolute: ", error.message()));

  // The longest part that exists, and what is missing after it.
  std::filesystem::path existing = given;
  std::vector<std::string> missing;
  std::optional<std::string> resolved = RealPath(existing.string());
  while (!resolved && errno == ENOENT && existing.has_relative_path()) {
    if (std::filesystem::is_symlink(existing, error)) return NotAllowed(path, "leads through a link to nothing");
    const std::string last = existing.filename().string();
    if (last == "..") return NotAllowed(path, "holds \"..\" after a part that does not exist");
    if (!last.empty() && last != ".") missing.push_back(last);
    existing = existing.parent_path();
    resolved = RealPath(existing.string());
  }
  if (!resolved) {
    const int reason = errno;
    // Something that is not a directory, or may not be entered, where one is needed: whoever uses the path says so.
    if (reason == ENOTDIR || reason == EACCES) {
      const std::string lexical = given.lexically_normal().string();
      ESPALIER_RETURN_IF_ERROR(Check(lexical));
      return lexical;
    }
    return NotAllowed(path, absl::StrCat("cannot be resolved: ", std::strerror(reason)));
  }
  std::reverse(missing.begin(), missing.end());
  if (!missing.empty()) {
    absl::StrAppend(&*resolved, absl::EndsWith(*resolved, "/") ? "" : "/", absl::StrJoin(missing, "/"));
  }
  ESPALIER_RETURN_IF_ERROR(Check(*resolved));
  return *resolved;
}

absl::Status PathRoots::Check(absl::string_view resolved) const {
  const bool inside = roots_.empty() || std::any_of(roots_.begin(), roots_.end(), [&](absl::string_view root) {
                        return resolved == root || root == "/" || absl::StartsWith(resolved, absl::StrCat(root, "/"));
                      });
  if (inside) return absl::OkStatus();
  return NotAllowed(resolved, absl::StrCat("lies outside the allowed directories (", JoinLimited(roots_, ", "), ")"));
}

}  // namespace espalier
