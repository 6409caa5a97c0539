#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/checkpoint/unique_fd.h"

namespace espalier {

// Lies in a temporary directory, locked (flock) by the process that fills it, and holds a word that nobody else knows.
inline constexpr char kLockName[] = ".espalier-lock";

// `.<name>.espalier-<token>` beside `target`, an absolute path.
std::string TemporaryPath(const std::string& target, absl::string_view token);

// A directory that is filled under a temporary name. While it lives, its lock is held; what is not kept is removed with
// everything in it.
class TempDirectory {
 public:
  // STORAGE_UNWRITABLE, also when there is one of this name that somebody holds.
  static absl::StatusOr<std::unique_ptr<TempDirectory>> Create(const std::string& target, absl::string_view token);
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  // What stands in the lock file: whoever reads it sees this very directory.
  const std::string& nonce() const { return nonce_; }

  // It has its final name now and stays. The lock goes with this object.
  void Keep() { kept_ = true; }

 private:
  TempDirectory(std::string path, std::string nonce, UniqueFd lock)
      : path_(std::move(path)), nonce_(std::move(nonce)), lock_(std::move(lock)) {}
  const std::string path_;
  const std::string nonce_;
  const UniqueFd lock_;
  bool kept_ = false;
};

// Whether the temporary directory at `path` is the one of `nonce`.
bool SeesNonce(const std::string& path, absl::string_view nonce);

// Removes a temporary directory unless somebody holds it. False where somebody does.
bool RemoveUnlessHeld(const std::string& path);

// Removes the temporaries of `target` that nobody holds.
void SweepTemporaries(const std::string& target);

}  // namespace espalier
