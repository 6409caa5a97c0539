#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/mask_file.h"
#include "worker/checkpoint/replace.h"
#include "worker/checkpoint/save.h"
#include "worker/checkpoint/storage_error.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

absl::Status OutputExists(const std::string& path, absl::string_view what) {
  return MakeError(v1::ERROR_REASON_OUTPUT_EXISTS, absl::StrCat(path, " ", what), {{"path", path}});
}

// Overwriting removes a directory with everything in it: only one that a checkpoint was written to, or an empty one.
bool LooksLikeCheckpoint(const std::string& path) {
  bool empty = true;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::EndsWith(name, ".safetensors") || name == "config.json") return true;
    empty = false;
  }
  return !error && (empty || fs::exists(absl::StrCat(path, "/", kManifestName), error));
}

absl::Status CheckExisting(const std::string& path, bool overwrite) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error))) return OutputExists(path, "exists and is not a directory");
  if (!overwrite) return OutputExists(path, "exists; choose another name or ask to overwrite it");
  struct stat self = {}, parent = {};
  if (stat(path.c_str(), &self) == 0 && stat(absl::StrCat(path, "/..").c_str(), &parent) == 0 &&
      (self.st_dev != parent.st_dev || self.st_ino == parent.st_ino)) {
    return StorageUnwritable(path, "is a mount point and cannot be replaced; use a folder in it", EBUSY);
  }
  if (!LooksLikeCheckpoint(path)) {
    return OutputExists(path, "holds other things than a checkpoint and is not overwritten; remove it yourself");
  }
  return absl::OkStatus();
}

// Whether replacing `directory` would take `model` away: it is the model's directory, or one that the model lies in.
bool Holds(const std::string& directory, absl::string_view model) {
  std::error_code error;
  for (fs::path at = fs::canonical(std::string(model), error); !error; at = at.parent_path()) {
    if (fs::equivalent(at, directory, error)) return true;
    if (!at.has_relative_path()) return false;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::string> CheckOutput(absl::string_view path, bool overwrite, const PathRoots& roots,
                                        absl::string_view model) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string resolved, roots.Resolve(path));
  MendReplaced(resolved);
  struct stat info = {};
  if (lstat(resolved.c_str(), &info) == 0) {
    if (overwrite && !model.empty() && Holds(resolved, model)) {
      return OutputExists(resolved, "holds the model that is pruned and is not overwritten; choose another directory");
    }
    ESPALIER_RETURN_IF_ERROR(CheckExisting(resolved, overwrite));
  } else if (errno == EACCES) {
    return StorageUnwritable(resolved, "cannot be examined", errno);
  }
  // The nearest folder that is there must take the new one.
  fs::path folder = fs::path(resolved).parent_path();
  while (lstat(folder.c_str(), &info) != 0 && folder.has_relative_path()) folder = folder.parent_path();
  if (!S_ISDIR(info.st_mode)) return StorageUnwritable(folder.string(), "is not a directory", ENOTDIR);
  if (access(folder.c_str(), W_OK | X_OK) != 0) return StorageUnwritable(folder.string(), "is not writable", errno);
  return resolved;
}

}  // namespace espalier
