#include "worker/checkpoint/load.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/count.h"
#include "worker/checkpoint/parallel.h"
#include "worker/mask/kernels.h"
#include "worker/shard/dtype.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

// One read: large enough that the calls cost nothing, small enough to spread and to show progress.
constexpr int64_t kReadBytes = int64_t{16} << 20;

// MemAvailable of /proc/meminfo in bytes; -1 where the kernel does not say.
int64_t AvailableMemory() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  while (in >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    in.ignore(256, '\n');
  }
  return -1;
}

}  // namespace

absl::Status CheckMemory(int64_t needed) {
  const int64_t available = AvailableMemory();
  if (available < 0 || needed <= available) return absl::OkStatus();
  return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                   absl::StrCat("this rank's shards need ", needed, " bytes of memory and ", available,
                                " are available; use more workers, or a machine with more memory"),
                   {{"limit", absl::StrCat(available)}, {"value", absl::StrCat(needed)}});
}

absl::StatusOr<ShardTable> LoadShards(const Checkpoint& checkpoint, int rank, int world_size,
                                      const ByteProgress& progress) {
  const auto& parameters = checkpoint.description().parameters();
  const auto range_of = [&](const v1::Parameter& p) { return RowShard(p.shape(), rank, world_size); };
  int64_t total = 0;
  std::vector<int64_t> sizes;
  for (const v1::Parameter& p : parameters) total += sizes.emplace_back(range_of(p).size() * DtypeSize(p.dtype()));
  ESPALIER_RETURN_IF_ERROR(CheckMemory(total));
  ESPALIER_ASSIGN_OR_RETURN(std::vector<std::shared_ptr<Storage>> storages, Storage::AllocateAll(sizes));

  struct Read {
    size_t parameter;
    int64_t begin;  // byte of the tensor
    absl::Span<std::byte> out;
  };
  std::vector<Read> reads;
  ShardTable shards(rank, world_size);
  for (int i = 0; i < parameters.size(); ++i) {
    const ShardRange range = range_of(parameters[i]);
    const int64_t size = DtypeSize(parameters[i].dtype());
    std::shared_ptr<Storage>& storage = storages[static_cast<size_t>(i)];
    for (int64_t at = 0; at < range.size() * size; at += kReadBytes) {
      reads.push_back({static_cast<size_t>(i), range.begin * size + at,
                       storage->bytes().subspan(static_cast<size_t>(at), static_cast<size_t>(kReadBytes))});
    }
    ESPALIER_RETURN_IF_ERROR(shards.Add(parameters[i], range, std::move(storage)));
  }
  std::atomic<int64_t> done = 0;
  const auto read = [&](size_t i) {
    absl::Status status = checkpoint.ReadTensor(reads[i].parameter, reads[i].begin, reads[i].out);
    done += static_cast<int64_t>(reads[i].out.size());
    return status;
  };
  const auto report = [&] {
    if (progress) progress(done, total);
  };
  // Ranks of one machine share its cores.
  ESPALIER_RETURN_IF_ERROR(RunParallel(reads.size(), std::max(ReadingThreads() / world_size, 1), read, report));
  report();
  return shards;
}

absl::StatusOr<MaskTable> LoadStoredMasks(const Checkpoint& checkpoint, const ShardTable& shards) {
  MaskTable masks;
  const auto& parameters = checkpoint.description().parameters();
  for (int i = 0; i < parameters.size(); ++i) {
    const v1::Parameter& parameter = parameters[i];
    if (!parameter.has_stored_mask()) continue;
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(parameter.name()));
    ESPALIER_ASSIGN_OR_RETURN(Bitmask mask, ReadStoredMask(checkpoint, static_cast<size_t>(i), shard.range));
    const VerifyCounts counts = VerifyMask(parameter.dtype(), shard.storage->bytes(), mask);
    if (counts.violations > 0) {
      return CheckpointInvalid(
          checkpoint.mask_file()->name(), parameter.name(),
          absl::StrCat("prunes ", counts.violations,
                       " weights that are not zero: the weights were changed after the mask was made; "
                       "--ignore-stored-masks starts without the stored masks"));
    }
    masks[parameter.name()] = {.bits = std::make_shared<const Bitmask>(std::move(mask))};
  }
  return masks;
}

}  // namespace espalier
