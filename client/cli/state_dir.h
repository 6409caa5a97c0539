#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier::cli {

// Where the coordinator of `espalier run` keeps its journal and all children their logs.
class StateDir {
 public:
  // A temporary folder (TMPDIR) where `path` is empty, which is removed with this object unless it is kept; otherwise the
  // folder `path`, made if need be and never removed. STORAGE_UNWRITABLE (path, errno).
  static absl::StatusOr<std::unique_ptr<StateDir>> Open(absl::string_view path);
  ~StateDir();
  StateDir(const StateDir&) = delete;
  StateDir& operator=(const StateDir&) = delete;

  const std::string& path() const { return path_; }
  std::string Log(absl::string_view child) const;
  void Keep() { remove_ = false; }

 private:
  StateDir(std::string path, bool remove) : path_(std::move(path)), remove_(remove) {}

  const std::string path_;
  bool remove_;
};

}  // namespace espalier::cli
