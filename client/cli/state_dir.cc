#include "client/cli/state_dir.h"

#include <errno.h>
#include <stdlib.h>

#include <filesystem>
#include <system_error>

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

}  // namespace

absl::StatusOr<std::unique_ptr<StateDir>> StateDir::Open(absl::string_view path) {
  std::error_code error;
  if (!path.empty()) {
    const auto absolute = std::filesystem::absolute(std::string(path), error);
    std::filesystem::create_directories(absolute, error);
    if (error) return Unwritable(path, error);
    return std::unique_ptr<StateDir>(new StateDir(absolute.string(), false));
  }
  const auto parent = std::filesystem::temp_directory_path(error);
  if (error) return Unwritable("in TMPDIR", error);
  std::string made = (parent / "espalier-run-XXXXXX").string();
  if (mkdtemp(made.data()) == nullptr) return Unwritable(made, std::error_code(errno, std::generic_category()));
  return std::unique_ptr<StateDir>(new StateDir(std::move(made), true));
}

StateDir::~StateDir() {
  std::error_code ignored;
  if (remove_) std::filesystem::remove_all(path_, ignored);
}

std::string StateDir::Log(absl::string_view child) const {
  return absl::StrCat(path_, "/", child, ".log");
}

}  // namespace espalier::cli
