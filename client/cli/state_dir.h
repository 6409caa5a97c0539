#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/unique_fd.h"

namespace espalier::cli {

// Where the coordinator of `espalier run` keeps its journal and all children their logs. Not thread-safe.
class StateDir {
 public:
  // A temporary folder (TMPDIR) where `path` is empty, which is removed with this object unless it is kept; otherwise the
  // folder `path`, made if need be and never removed. STORAGE_UNWRITABLE (path, errno).
  //
  // A process that is killed removes nothing, so the next one does: a temporary folder holds a file that its owner has
  // locked, and Open("") first removes those of this user in TMPDIR whose lock nobody holds any more. Kept ones have none.
  static absl::StatusOr<std::unique_ptr<StateDir>> Open(absl::string_view path);
  ~StateDir();
  StateDir(const StateDir&) = delete;
  StateDir& operator=(const StateDir&) = delete;

  const std::string& path() const { return path_; }
  std::string Log(absl::string_view child) const;
  void Keep();

 private:
  StateDir(std::string path, bool remove, UniqueFd owned)
      : path_(std::move(path)), remove_(remove), owned_(std::move(owned)) {}

  const std::string path_;
  bool remove_;
  UniqueFd owned_;  // the locked file
};

}  // namespace espalier::cli
