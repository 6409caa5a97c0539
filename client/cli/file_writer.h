#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/unique_fd.h"

namespace espalier::cli {

// Writes a file that is complete under its name or not there: bytes go to a temporary file beside it, which Commit syncs
// and renames; without Commit, and at an interrupt, it is removed. Not thread-safe.
class FileWriter {
 public:
  // STORAGE_UNWRITABLE (path, errno), as of the other functions.
  static absl::StatusOr<std::unique_ptr<FileWriter>> Open(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  absl::Status Write(absl::string_view data);
  absl::Status Commit();

 private:
  FileWriter(std::string path, std::string temporary, UniqueFd fd);
  absl::Status Failed(absl::string_view what) const;

  const std::string path_;
  // Empty once committed.
  std::string temporary_;
  UniqueFd fd_;
};

}  // namespace espalier::cli
