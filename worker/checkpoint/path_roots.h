#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier {

// The directories that paths of requests may lead into. Paths are resolved first and then tested, so that a symbolic
// link cannot lead out, and a hub cache whose links stay inside works. Immutable after construction, thread-safe.
class PathRoots {
 public:
  // Everything is allowed.
  PathRoots() = default;

  // `directories` must exist; they are resolved here. None: everything is allowed. PATH_NOT_ALLOWED names one that
  // cannot be resolved.
  static absl::StatusOr<PathRoots> Create(const std::vector<std::string>& directories);

  // The absolute path without links, "." or "..". Of a path that does not exist yet, the longest existing part is
  // resolved and the rest, which may hold no "..", is appended. PATH_NOT_ALLOWED when it lies in no root;
  // REQUEST_INVALID for an empty path or one with a NUL.
  absl::StatusOr<std::string> Resolve(absl::string_view path) const;

  // PATH_NOT_ALLOWED unless `resolved`, an absolute path without links, lies in a root.
  absl::Status Check(absl::string_view resolved) const;

 private:
  std::vector<std::string> roots_;
};

}  // namespace espalier
