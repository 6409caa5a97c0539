#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/checkpoint/unique_fd.h"

namespace espalier {

// A regular file open for reading. Thread-safe.
class InputFile {
 public:
  // `name` is what errors call it. CHECKPOINT_INVALID when it cannot be opened or is not a regular file.
  static absl::StatusOr<std::shared_ptr<const InputFile>> Open(const std::string& path, std::string name);

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }
  // At the moment of opening.
  int64_t size() const { return size_; }

  // Fills `out` from `offset`. CHECKPOINT_INVALID when the file ends before, or cannot be read.
  absl::Status ReadAt(int64_t offset, absl::Span<std::byte> out) const;

  // The whole file as text; CHECKPOINT_INVALID when it is longer than `limit`.
  absl::StatusOr<std::string> ReadText(int64_t limit) const;

 private:
  InputFile(UniqueFd fd, std::string path, std::string name, int64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), name_(std::move(name)), size_(size) {}
  const UniqueFd fd_;
  const std::string path_;
  const std::string name_;
  const int64_t size_;
};

}  // namespace espalier
