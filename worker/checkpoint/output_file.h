#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/checkpoint/unique_fd.h"

namespace espalier {

// A file being written at chosen offsets. Errors are STORAGE_UNWRITABLE with path and errno.
class OutputFile {
 public:
  // A new file of `size` bytes; one that exists is an error.
  static absl::StatusOr<OutputFile> Create(const std::string& path, int64_t size);
  // One that was created by another rank.
  static absl::StatusOr<OutputFile> Open(const std::string& path);

  absl::Status WriteAt(int64_t offset, absl::Span<const std::byte> bytes);
  // Lets the disk begin with bytes that were written, so that it works while we do. A hint: says nothing of success.
  void BeginWriteback(int64_t offset, int64_t size);
  // On return the bytes are on the disk.
  absl::Status Sync();

 private:
  OutputFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
};

// Syncs all of them at once: a journaling file system commits together what is asked for together. The error of the first
// that failed.
absl::Status SyncAll(std::vector<OutputFile>& files);

// Creates, writes and syncs a small file.
absl::Status WriteNewFile(const std::string& path, absl::string_view text);

// Makes the names in a directory durable.
absl::Status SyncDirectory(const std::string& path);

absl::Span<const std::byte> AsBytes(absl::string_view text);

}  // namespace espalier
