#include "worker/checkpoint/count.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/mutex.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/parallel.h"
#include "worker/mask/digest.h"
#include "worker/mask/kernels.h"
#include "worker/mask/mask_rows.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

// Read at a time: enough for the disk, little for memory, and fitting a second-level cache with what is computed of it.
constexpr int64_t kChunkBytes = int64_t{1} << 20;
// One task of a thread.
constexpr int64_t kTaskBytes = int64_t{64} << 20;

// Whole rows of about `bytes`, at least one.
int64_t ChunkElements(const v1::Parameter& parameter, int64_t bytes) {
  const int64_t row = std::max<int64_t>(RowElements(parameter.shape()), 1);
  return std::max<int64_t>(bytes / (row * DtypeSize(parameter.dtype())), 1) * row;
}

}  // namespace

void FileCounts::Add(const FileCounts& other) {
  zeros += other.zeros;
  masked += other.masked;
  violations += other.violations;
  digest = AddDigests(digest, other.digest);
}

absl::StatusOr<Bitmask> ReadStoredMask(const Checkpoint& checkpoint, size_t i, ShardRange range) {
  const v1::Parameter& parameter = checkpoint.description().parameters(static_cast<int>(i));
  const int64_t row = std::max<int64_t>(RowElements(parameter.shape()), 1);
  const int64_t row_bytes = PackedShape(parameter.shape())[1];
  const int64_t offset = checkpoint.mask_offsets().find(parameter.name())->second + range.begin / row * row_bytes;
  std::vector<uint8_t> packed(static_cast<size_t>(range.size() / row * row_bytes));
  ESPALIER_RETURN_IF_ERROR(checkpoint.mask_file()->ReadAt(
      offset, absl::MakeSpan(reinterpret_cast<std::byte*>(packed.data()), packed.size())));
  auto mask = UnpackRows(parameter.shape(), range, packed);
  if (mask.ok()) return mask;
  const std::string& file = checkpoint.mask_file()->name();
  return Annotate(mask.status(), absl::StrCat(file, ": tensor \"", parameter.name(), "\": "),
                  {{"file", file}, {"tensor", parameter.name()}});
}

absl::StatusOr<FileCounts> CountRange(const Checkpoint& checkpoint, size_t i, ShardRange range,
                                      std::vector<std::byte>& buffer) {
  const v1::Parameter& parameter = checkpoint.description().parameters(static_cast<int>(i));
  const int64_t size = DtypeSize(parameter.dtype());
  const int64_t step = ChunkElements(parameter, kChunkBytes);
  FileCounts counts;
  for (int64_t begin = range.begin; begin < range.end; begin += step) {
    const ShardRange chunk = {begin, std::min(begin + step, range.end)};
    buffer.resize(std::max(buffer.size(), static_cast<size_t>(chunk.size() * size)));
    const absl::Span<std::byte> bytes = absl::MakeSpan(buffer).first(static_cast<size_t>(chunk.size() * size));
    ESPALIER_RETURN_IF_ERROR(checkpoint.ReadTensor(i, begin * size, bytes));
    if (!parameter.has_stored_mask()) {
      counts.zeros += CountZeros(parameter.dtype(), bytes);
      continue;
    }
    ESPALIER_ASSIGN_OR_RETURN(const Bitmask mask, ReadStoredMask(checkpoint, i, chunk));
    const VerifyCounts verified = VerifyMask(parameter.dtype(), bytes, mask);
    counts.Add({.zeros = verified.zeros,
                .masked = mask.CountPruned(),
                .violations = verified.violations,
                .digest = MaskDigest(parameter.name(), mask, chunk)});
  }
  return counts;
}

absl::StatusOr<std::vector<FileCounts>> CountAll(const Checkpoint& checkpoint, const ByteProgress& progress) {
  struct Task {
    size_t parameter;
    ShardRange range;
  };
  std::vector<Task> tasks;
  const auto& parameters = checkpoint.description().parameters();
  for (int i = 0; i < parameters.size(); ++i) {
    const int64_t elements = NumElements(parameters[i].shape());
    const int64_t step = ChunkElements(parameters[i], kTaskBytes);
    for (int64_t begin = 0; begin < elements; begin += step) {
      tasks.push_back({static_cast<size_t>(i), {begin, std::min(begin + step, elements)}});
    }
  }
  std::vector<FileCounts> counts(static_cast<size_t>(parameters.size()));
  std::atomic<int64_t> done = 0;
  Mutex mutex;  // guards counts
  const auto report = [&] {
    if (progress) progress(done, checkpoint.description().total_bytes());
  };
  const auto count = [&](size_t t) -> absl::Status {
    std::vector<std::byte> buffer;
    const Task& task = tasks[t];
    ESPALIER_ASSIGN_OR_RETURN(const FileCounts part, CountRange(checkpoint, task.parameter, task.range, buffer));
    done += task.range.size() * DtypeSize(parameters[static_cast<int>(task.parameter)].dtype());
    MutexLock lock(mutex);
    counts[task.parameter].Add(part);
    return absl::OkStatus();
  };
  ESPALIER_RETURN_IF_ERROR(RunParallel(tasks.size(), ReadingThreads(), count, report));
  report();
  return counts;
}

}  // namespace espalier
