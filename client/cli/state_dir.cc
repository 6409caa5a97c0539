#include "client/cli/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier::cli {
namespace {

absl::Status Unwritable(absl::string_view path, const std::error_code& error) {
  return MakeError(v1::ERROR_REASON_STORAGE_UNWRITABLE,
                   absl::StrCat("cannot make the state directory ", path, ": ", error.message(),
                                "; choose another with --state-dir"),
                   {{"path", std::string(path)}, {"errno", absl::StrCat(error.value())}});
}

constexpr char kPrefix[] = "espalier-run-";
constexpr char kOwned[] = "owned";

// The file that says that the folder has an owner. It gets its name when it is locked, so that nobody ever finds it free
// while the owner lives.
absl::StatusOr<UniqueFd> Own(const std::string& path) {
  const std::string unnamed = path + "/owned.new";
  UniqueFd fd(open(unnamed.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid() || flock(fd.get(), LOCK_EX | LOCK_NB) != 0 ||
      rename(unnamed.c_str(), absl::StrCat(path, "/", kOwned).c_str()) != 0) {
    return Unwritable(path, std::error_code(errno, std::generic_category()));
  }
  return fd;
}

// Whether the folder is one of this user's that had an owner, which lives no more.
bool IsOrphaned(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return false;
  const UniqueFd fd(open(absl::StrCat(path, "/", kOwned).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
}

// What killed processes left. Nothing that fails here is worth an error.
void Sweep(const std::filesystem::path& parent) {
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(parent, error); !error && it != decltype(it)();
       it.increment(error)) {
    std::error_code ignored;
    if (absl::StartsWith(it->path().filename().string(), kPrefix) && IsOrphaned(it->path().string())) {
      std::filesystem::remove_all(it->path(), ignored);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateDir>> StateDir::Open(absl::string_view path) {
  std::error_code error;
  if (!path.empty()) {
    const auto absolute = std::filesystem::absolute(std::string(path), error);
    std::filesystem::create_directories(absolute, error);
    if (error) return Unwritable(path, error);
    return std::unique_ptr<StateDir>(new StateDir(absolute.string(), false, UniqueFd()));
  }
  const auto parent = std::filesystem::temp_directory_path(error);
  if (error) return Unwritable("in TMPDIR", error);
  Sweep(parent);
  std::string made = (parent / absl::StrCat(kPrefix, "XXXXXX")).string();
  if (mkdtemp(made.data()) == nullptr) return Unwritable(made, std::error_code(errno, std::generic_category()));
  absl::StatusOr<UniqueFd> owned = Own(made);
  if (!owned.ok()) {
    std::filesystem::remove_all(made, error);
    return owned.status();
  }
  return std::unique_ptr<StateDir>(new StateDir(std::move(made), true, *std::move(owned)));
}

StateDir::~StateDir() {
  std::error_code ignored;
  if (remove_) std::filesystem::remove_all(path_, ignored);
}

void StateDir::Keep() {
  if (owned_.valid()) unlink(absl::StrCat(path_, "/", kOwned).c_str());
  remove_ = false;
}

std::string StateDir::Log(absl::string_view child) const {
  return absl::StrCat(path_, "/", child, ".log");
}

}  // namespace espalier::cli
