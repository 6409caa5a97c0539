#include "worker/checkpoint/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/parallel.h"
#include "worker/checkpoint/storage_error.h"

namespace espalier {
namespace {

// Each waits for the disk and for nothing else.
constexpr int kSyncThreads = 16;

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path, int64_t size) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.ok()) {
    const int number = errno;
    ESPALIER_RETURN_IF_ERROR(TooManyOpenFiles(path, number));
    return StorageUnwritable(path, "cannot be created", number);
  }
  if (size > 0 && ftruncate(fd.get(), size) != 0) return StorageUnwritable(path, "cannot be given its size", errno);
  return OutputFile(std::move(fd), path);
}

absl::StatusOr<OutputFile> OutputFile::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.ok()) {
    const int number = errno;
    ESPALIER_RETURN_IF_ERROR(TooManyOpenFiles(path, number));
    return StorageUnwritable(path, "cannot be opened for writing", number);
  }
  return OutputFile(std::move(fd), path);
}

absl::Status OutputFile::WriteAt(int64_t offset, absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_.get(), bytes.data(), std::min(bytes.size(), size_t{1} << 30), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return StorageUnwritable(path_, "cannot be written", errno);
    offset += n;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

void OutputFile::BeginWriteback(int64_t offset, int64_t size) {
  sync_file_range(fd_.get(), offset, size, SYNC_FILE_RANGE_WRITE);
}

absl::Status OutputFile::Sync() {
  return fsync(fd_.get()) == 0 ? absl::OkStatus() : StorageUnwritable(path_, "cannot be synced to the disk", errno);
}

absl::Status SyncAll(std::vector<OutputFile>& files) {
  return RunParallel(files.size(), kSyncThreads, [&](size_t i) { return files[i].Sync(); });
}

absl::Status WriteNewFile(const std::string& path, absl::string_view text) {
  ESPALIER_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path, 0));
  ESPALIER_RETURN_IF_ERROR(file.WriteAt(0, AsBytes(text)));
  return file.Sync();
}

absl::Status SyncDirectory(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return StorageUnwritable(path, "cannot be opened", errno);
  // Some network file systems know no sync of directories.
  if (fsync(fd.get()) == 0 || errno == EINVAL) return absl::OkStatus();
  return StorageUnwritable(path, "cannot be synced to the disk", errno);
}

absl::Span<const std::byte> AsBytes(absl::string_view text) {
  // Looking at characters as bytes is what std::byte is for.
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace espalier
