#include "worker/checkpoint/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"

namespace espalier {

absl::StatusOr<std::shared_ptr<const InputFile>> InputFile::Open(const std::string& path, std::string name) {
  // O_NONBLOCK: a pipe in the place of a file must not make us wait for its writer.
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.ok()) {
    const int number = errno;
    ESPALIER_RETURN_IF_ERROR(TooManyOpenFiles(name, number));
    return CheckpointInvalid(name, "", absl::StrCat("cannot be opened: ", std::strerror(number)));
  }
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) {
    return CheckpointInvalid(name, "", absl::StrCat("cannot be examined: ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) return CheckpointInvalid(name, "", "is not a regular file");
  return std::shared_ptr<const InputFile>(new InputFile(std::move(fd), path, std::move(name), info.st_size));
}

absl::Status InputFile::ReadAt(int64_t offset, absl::Span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(fd_.get(), out.data(), std::min(out.size(), size_t{1} << 30), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return CheckpointInvalid(name_, "", absl::StrCat("cannot be read at byte ", offset, ": ", std::strerror(errno)));
    }
    if (n == 0) {
      return CheckpointInvalid(name_, "",
                               absl::StrCat("ends at byte ", offset, " and had ", size_, " bytes when it was opened"));
    }
    offset += n;
    out.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> InputFile::ReadText(int64_t limit) const {
  if (size_ > limit) {
    return CheckpointInvalid(name_, "", absl::StrCat("has ", size_, " bytes; at most ", limit, " are read"));
  }
  std::string out(static_cast<size_t>(size_), '\0');
  ESPALIER_RETURN_IF_ERROR(ReadAt(0, absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size())));
  return out;
}

}  // namespace espalier
