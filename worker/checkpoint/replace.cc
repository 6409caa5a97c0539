#include "worker/checkpoint/replace.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "worker/checkpoint/storage_error.h"
#include "worker/checkpoint/temp_directory.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

absl::Status OutputExists(const std::string& target) {
  return MakeError(v1::ERROR_REASON_OUTPUT_EXISTS,
                   absl::StrCat(target, " exists; choose another name or ask to overwrite it"), {{"path", target}});
}

absl::Status CannotReplace(const std::string& target, int number) {
  if (number == EBUSY) {
    return StorageUnwritable(target, "is a mount point and cannot be replaced; use a folder in it", number);
  }
  return StorageUnwritable(target, "cannot get its final name", number);
}

// For file systems without the flags of renameat2.
absl::Status MoveInTwoSteps(const std::string& temporary, const std::string& target, bool overwrite) {
  const std::string old = absl::StrCat(temporary, kReplacedSuffix);
  const bool replaces = IsThere(target);
  if (replaces && !overwrite) return OutputExists(target);
  if (replaces && rename(target.c_str(), old.c_str()) != 0) return CannotReplace(target, errno);
  if (rename(temporary.c_str(), target.c_str()) != 0) {
    const int number = errno;
    if (replaces && rename(old.c_str(), target.c_str()) != 0) {
      LogError("replaced_directory_left", {{"path", old}, {"belongs_at", target}});
    }
    return CannotReplace(target, number);
  }
  // Left under the temporary name, as after an exchange.
  if (replaces && rename(old.c_str(), temporary.c_str()) != 0) return CannotReplace(old, errno);
  return absl::OkStatus();
}

}  // namespace

std::string TemporaryPrefix(absl::string_view name) {
  return absl::StrCat(".", name, ".espalier-");
}

absl::Status MoveIntoPlace(const std::string& temporary, const std::string& target, bool overwrite) {
  const auto move = [&](unsigned flags) {
    return renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), flags) == 0 ? 0 : errno;
  };
  int number = move(RENAME_NOREPLACE);
  if (number == 0) return absl::OkStatus();
  if (number == EEXIST) {
    if (!overwrite) return OutputExists(target);
    number = move(RENAME_EXCHANGE);
    if (number == 0) return absl::OkStatus();
  }
  if (number == EINVAL || number == ENOSYS) return MoveInTwoSteps(temporary, target, overwrite);
  return CannotReplace(target, number);
}

void MendReplaced(const std::string& target) {
  if (IsThere(target)) return;
  const fs::path path(target);
  const std::string prefix = TemporaryPrefix(path.filename().string());
  std::error_code error;
  for (fs::directory_iterator it(path.parent_path(), error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!absl::StartsWith(name, prefix) || !absl::EndsWith(name, kReplacedSuffix)) continue;
    // Whoever replaces holds the new directory until it is done, and is not to be disturbed.
    const std::string old = it->path().string();
    if (!RemoveUnlessHeld(old.substr(0, old.size() - absl::string_view(kReplacedSuffix).size()))) return;
    if (rename(old.c_str(), target.c_str()) == 0) LogWarn("replaced_directory_mended", {{"path", target}});
    return;
  }
}

}  // namespace espalier
