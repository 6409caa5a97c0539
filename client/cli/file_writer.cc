#include "client/cli/file_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/interrupt.h"
#include "proto/support/errors.h"

namespace espalier::cli {
namespace {

absl::Status Unwritable(const std::string& path, absl::string_view what, int error) {
  return MakeError(v1::ERROR_REASON_STORAGE_UNWRITABLE,
                   absl::StrCat("cannot ", what, " ", path, ": ", std::generic_category().message(error),
                                "; write to another place"),
                   {{"path", path}, {"errno", absl::StrCat(error)}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileWriter>> FileWriter::Open(const std::string& path) {
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return Unwritable(path, "create", errno);
  // mkostemp keeps others out; the finished file is as readable as any.
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(fd.get(), 0666 & ~mask);
  return std::unique_ptr<FileWriter>(new FileWriter(path, std::move(temporary), std::move(fd)));
}

FileWriter::FileWriter(std::string path, std::string temporary, UniqueFd fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {
  RemoveOnInterrupt(temporary_);
}

FileWriter::~FileWriter() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
  RemoveOnInterrupt("");
}

absl::Status FileWriter::Failed(absl::string_view what) const {
  return Unwritable(path_, what, errno);
}

absl::Status FileWriter::Write(absl::string_view data) {
  while (!data.empty()) {
    const ssize_t written = write(fd_.get(), data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write");
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Commit() {
  if (fsync(fd_.get()) != 0) return Failed("sync");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Failed("rename to");
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace espalier::cli
