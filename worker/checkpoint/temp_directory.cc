#include "worker/checkpoint/temp_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/log.h"
#include "proto/support/status_macros.h"
#include "proto/support/uuid.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/output_file.h"
#include "worker/checkpoint/replace.h"
#include "worker/checkpoint/storage_error.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

// A lock file can be swept between its creation and its locking; whoever loses that race starts over.
constexpr int kAttempts = 8;

// Holds the lock of the directory, or not ok() with errno: EWOULDBLOCK where somebody else does, ENOENT where the
// directory went away meanwhile.
UniqueFd TryLock(const std::string& directory) {
  UniqueFd fd(open(absl::StrCat(directory, "/", kLockName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.ok() || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  struct stat info = {};
  if (fstat(fd.get(), &info) == 0 && info.st_nlink > 0) return fd;
  errno = ENOENT;
  return {};
}

void RemoveTree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) LogWarn("temporary_not_removed", {{"path", path}, {"error", error.message()}});
}

}  // namespace

std::string TemporaryPath(const std::string& target, absl::string_view token) {
  std::string word(token);
  std::replace_if(
      word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  const fs::path path(target);
  return (path.parent_path() / absl::StrCat(TemporaryPrefix(path.filename().string()), word)).string();
}

absl::StatusOr<std::unique_ptr<TempDirectory>> TempDirectory::Create(const std::string& target,
                                                                     absl::string_view token) {
  const std::string path = TemporaryPath(target, token);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const bool made = mkdir(path.c_str(), 0777) == 0;
    if (!made && errno != EEXIST) return StorageUnwritable(path, "cannot be created", errno);
    UniqueFd lock = TryLock(path);
    if (!lock.ok() && (errno == EWOULDBLOCK || errno == ENOENT)) continue;
    if (!lock.ok()) {
      const int number = errno;
      if (made) rmdir(path.c_str());
      ESPALIER_RETURN_IF_ERROR(TooManyOpenFiles(path, number));
      return StorageUnwritable(absl::StrCat(path, "/", kLockName), "cannot be created", number);
    }
    const std::string nonce = NewUuid();
    std::unique_ptr<TempDirectory> out(new TempDirectory(path, nonce, std::move(lock)));
    // Somebody's leftover of the same name: nothing of it may stay.
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
      if (entry.path().filename() != kLockName) fs::remove_all(entry.path(), error);
    }
    if (ftruncate(out->lock_.get(), 0) != 0 || pwrite(out->lock_.get(), nonce.data(), nonce.size(), 0) < 0 ||
        fsync(out->lock_.get()) != 0) {
      return StorageUnwritable(absl::StrCat(path, "/", kLockName), "cannot be written", errno);
    }
    ESPALIER_RETURN_IF_ERROR(SyncDirectory(path));
    return out;
  }
  return StorageUnwritable(path, "is being written by another process", 0);
}

TempDirectory::~TempDirectory() {
  if (!kept_) RemoveTree(path_);
}

bool SeesNonce(const std::string& path, absl::string_view nonce) {
  const UniqueFd fd(open(absl::StrCat(path, "/", kLockName).c_str(), O_RDONLY | O_CLOEXEC));
  std::string read(nonce.size() + 1, '\0');
  const ssize_t n = fd.ok() ? pread(fd.get(), read.data(), read.size(), 0) : -1;
  return n == static_cast<ssize_t>(nonce.size()) && absl::string_view(read).substr(0, nonce.size()) == nonce;
}

bool RemoveUnlessHeld(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error))) return true;
  const UniqueFd lock = TryLock(path);
  if (!lock.ok()) return !fs::exists(fs::symlink_status(path, error));
  RemoveTree(path);
  return true;
}

void SweepTemporaries(const std::string& target) {
  MendReplaced(target);
  const fs::path path(target);
  const std::string prefix = TemporaryPrefix(path.filename().string());
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(path.parent_path(), error), end; !error && it != end; it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), prefix)) found.push_back(it->path().string());
  }
  for (const std::string& name : found) {
    // What somebody is just replacing belongs to the directory that replaces it.
    const absl::string_view replacing = absl::StripSuffix(name, kReplacedSuffix);
    if (replacing == name || RemoveUnlessHeld(std::string(replacing))) RemoveUnlessHeld(name);
  }
}

}  // namespace espalier
