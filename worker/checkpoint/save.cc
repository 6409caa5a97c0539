#include "worker/checkpoint/save.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/agree.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/mask_file.h"
#include "worker/checkpoint/output_file.h"
#include "worker/checkpoint/recount.h"
#include "worker/checkpoint/replace.h"
#include "worker/checkpoint/shard_writer.h"
#include "worker/checkpoint/storage_error.h"
#include "worker/checkpoint/temp_directory.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCopyBytes = size_t{1} << 20;
constexpr size_t kNonceBytes = 36;  // a UUID

void AddChecksum(const std::string& file, int64_t length, uint32_t crc, v1::SaveShardsResult& result) {
  v1::RangeChecksum& checksum = *result.add_checksums();
  checksum.set_file(file);
  checksum.set_length(length);
  checksum.set_crc32(crc);
  result.set_bytes_written(result.bytes_written() + length);
}

// Of the disk on which the folder is, or will be.
absl::Status CheckSpace(std::string folder, int64_t needed) {
  std::error_code error;
  while (!fs::exists(folder, error) && fs::path(folder).has_relative_path()) folder = fs::path(folder).parent_path();
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) return StorageUnwritable(folder, "cannot be asked for its space", errno);
  const uint64_t free = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  if (static_cast<uint64_t>(needed) <= free) return absl::OkStatus();
  return StorageUnwritable(folder, absl::StrCat("has ", free, " bytes left and the checkpoint takes ", needed), ENOSPC);
}

absl::Status CreateWithHeader(const std::string& directory, const PlannedFile& file, v1::SaveShardsResult& result) {
  ESPALIER_ASSIGN_OR_RETURN(OutputFile out, OutputFile::Create(absl::StrCat(directory, "/", file.name), file.size));
  ESPALIER_RETURN_IF_ERROR(out.WriteAt(0, AsBytes(file.header)));
  AddChecksum(file.name, static_cast<int64_t>(file.header.size()), Crc32(0, file.header.data(), file.header.size()),
              result);
  return absl::OkStatus();
}

absl::Status CopyFile(const InputFile& from, const std::string& directory, const std::function<absl::Status()>& check,
                      v1::SaveShardsResult& result, std::vector<OutputFile>& written) {
  const std::string name = fs::path(from.name()).filename().string();
  ESPALIER_ASSIGN_OR_RETURN(OutputFile out, OutputFile::Create(absl::StrCat(directory, "/", name), 0));
  std::vector<std::byte> buffer(kCopyBytes);
  uint32_t crc = 0;
  for (int64_t at = 0; at < from.size(); at += static_cast<int64_t>(kCopyBytes)) {
    const auto size = static_cast<size_t>(std::min<int64_t>(from.size() - at, kCopyBytes));
    const absl::Span<std::byte> part = absl::MakeSpan(buffer).first(size);
    ESPALIER_RETURN_IF_ERROR(check());
    ESPALIER_RETURN_IF_ERROR(from.ReadAt(at, part));
    ESPALIER_RETURN_IF_ERROR(out.WriteAt(at, part));
    crc = Crc32(crc, part.data(), part.size());
  }
  AddChecksum(name, from.size(), crc, result);
  written.push_back(std::move(out));
  return absl::OkStatus();
}

absl::Status WriteIndex(const std::string& index, const std::string& directory, v1::SaveShardsResult& result,
                        std::vector<OutputFile>& written) {
  ESPALIER_ASSIGN_OR_RETURN(OutputFile out, OutputFile::Create(absl::StrCat(directory, "/", kIndexName), 0));
  ESPALIER_RETURN_IF_ERROR(out.WriteAt(0, AsBytes(index)));
  AddChecksum(kIndexName, static_cast<int64_t>(index.size()), Crc32(0, index.data(), index.size()), result);
  written.push_back(std::move(out));
  return absl::OkStatus();
}

// What rank 0 makes alone, before the ranks write: files of full size with their headers, the index, other files. Those
// that are finished, and not synced, are added to `written`.
absl::Status Prepare(const std::string& directory, const SaveLayout& layout, const Checkpoint& source,
                     const std::function<absl::Status()>& check, v1::SaveShardsResult& result,
                     std::vector<OutputFile>& written) {
  for (const PlannedFile& file : layout.weights) ESPALIER_RETURN_IF_ERROR(CreateWithHeader(directory, file, result));
  std::error_code error;
  const std::string folder = absl::StrCat(directory, "/", kEspalierFolder);
  if (!fs::create_directory(folder, error)) return StorageUnwritable(folder, "cannot be created", error.value());
  if (layout.masks) ESPALIER_RETURN_IF_ERROR(CreateWithHeader(directory, *layout.masks, result));
  if (!layout.index.empty()) ESPALIER_RETURN_IF_ERROR(WriteIndex(layout.index, directory, result, written));
  for (const auto& file : source.other_files())
    ESPALIER_RETURN_IF_ERROR(CopyFile(*file, directory, check, result, written));
  return absl::OkStatus();
}

absl::StatusOr<SaveLayout> PlanLayout(const SaveRequest& request, const Checkpoint& source, const ShardTable& shards,
                                      const MaskTable& masks) {
  LayoutOptions options = {
      .max_shard_bytes = request.max_shard_bytes > 0 ? request.max_shard_bytes : kDefaultMaxShardBytes,
      .format = source.format()};
  if (request.format == v1::CHECKPOINT_FORMAT_DCP) options.dcp_ranks = shards.world_size();
  std::vector<const v1::Parameter*> parameters, masked;
  for (const std::string& name : shards.names()) {
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(name));
    parameters.push_back(shard.parameter);
    if (masks.find(name) != masks.end()) masked.push_back(shard.parameter);
  }
  return MakeLayout(parameters, masked, options);
}

// All ranks write parts of one layout, or nobody writes.
absl::Status CheckSameLayout(const SaveLayout& layout, Collective& collective, const CollectiveTag& tag) {
  const int64_t mine = LayoutFingerprint(layout);
  int64_t extremes[] = {mine, -mine};
  ESPALIER_RETURN_IF_ERROR(collective.AllReduce(tag, absl::MakeSpan(extremes), ReduceOp::kMax));
  if (extremes[0] == -extremes[1]) return absl::OkStatus();
  return MakeError(v1::ERROR_REASON_INVARIANT, "the ranks would save different parameters or masks",
                   {{"what", "layouts differ"}, {"where", "SaveShards"}});
}

// Whether all ranks see the directory that rank 0 made.
absl::StatusOr<bool> IsShared(const std::string& directory, std::string nonce, Collective& collective,
                              const CollectiveTag& tag) {
  nonce.resize(kNonceBytes);
  // Collectives move bytes; these are characters.
  const auto bytes = absl::MakeSpan(reinterpret_cast<std::byte*>(nonce.data()), nonce.size());
  ESPALIER_RETURN_IF_ERROR(collective.Broadcast(tag, 0, bytes));
  int64_t sees = SeesNonce(directory, nonce) ? 1 : 0;
  ESPALIER_RETURN_IF_ERROR(collective.AllReduce(tag, absl::MakeSpan(&sees, 1), ReduceOp::kMin));
  return sees == 1;
}

}  // namespace

// A save of which rank 0 holds the directory.
struct CheckpointSaver::Pending {
  std::string target;
  std::unique_ptr<TempDirectory> directory;
  std::map<std::string, int64_t> sizes;  // of all files but the manifest
};

CheckpointSaver::CheckpointSaver(PathRoots roots, const Clock& clock) : roots_(std::move(roots)), clock_(clock) {}
CheckpointSaver::~CheckpointSaver() = default;

absl::StatusOr<v1::SaveShardsResult> CheckpointSaver::SaveShards(const SaveRequest& request, const Checkpoint& source,
                                                                 const ShardTable& shards, const MaskTable& masks,
                                                                 Collective& collective) {
  const CollectiveTag tag = {.operation = "save", .command_id = request.command_id};
  const bool root = collective.rank() == 0;
  const std::function<absl::Status()> check = [&]() -> absl::Status {
    if (clock_.Monotonic() < request.deadline) return absl::OkStatus();
    return MakeError(v1::ERROR_REASON_DEADLINE,
                     absl::StrCat("saving ", request.path, " took too long; nothing is saved"),
                     {{"operation", "SaveShards"}});
  };

  // What each rank can find wrong alone; rank 0 also makes the directory.
  SaveLayout layout;
  std::string directory;
  auto pending = std::make_unique<Pending>();
  const auto begin = [&]() -> absl::Status {
    ESPALIER_RETURN_IF_ERROR(check());
    ESPALIER_ASSIGN_OR_RETURN(layout, PlanLayout(request, source, shards, masks));
    if (!root) {
      // A path that is not there for this rank, or leads elsewhere, only means that the file system is not shared.
      const auto resolved = roots_.Resolve(request.path);
      if (resolved.ok()) directory = TemporaryPath(*resolved, request.token);
      return absl::OkStatus();
    }
    ESPALIER_ASSIGN_OR_RETURN(pending->target, CheckOutput(request.path, request.overwrite, roots_, source.path()));
    const std::string folder = fs::path(pending->target).parent_path().string();
    SweepTemporaries(pending->target);
    int64_t bytes = layout.total_bytes;
    for (const auto& file : source.other_files()) bytes += file->size();
    ESPALIER_RETURN_IF_ERROR(CheckSpace(folder, bytes));
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return StorageUnwritable(folder, "cannot be created", error.value());
    ESPALIER_ASSIGN_OR_RETURN(pending->directory, TempDirectory::Create(pending->target, request.token));
    directory = pending->directory->path();
    return absl::OkStatus();
  };
  ESPALIER_RETURN_IF_ERROR(AgreeOn(begin(), collective, tag));
  ESPALIER_RETURN_IF_ERROR(CheckSameLayout(layout, collective, tag));

  v1::SaveShardsResult result;
  std::vector<OutputFile> written;  // not synced yet
  absl::Status mine = root ? Prepare(directory, layout, source, check, result, written) : absl::OkStatus();
  ESPALIER_RETURN_IF_ERROR(AgreeOn(mine, collective, tag));
  ESPALIER_ASSIGN_OR_RETURN(const bool shared,
                            IsShared(directory, root ? pending->directory->nonce() : "", collective, tag));

  ShardWriter writer(layout, shards, masks, request.progress, check);
  if (shared) {
    ESPALIER_RETURN_IF_ERROR(AgreeOn(writer.Write(directory, result, written), collective, tag));
  } else {
    if (root) LogInfo("save_through_rank_0", {{"path", request.path}});
    ESPALIER_RETURN_IF_ERROR(writer.WriteThroughRoot(directory, collective, request.command_id, result, written));
  }

  // Counted from the files, by the reader that will read them.
  const auto recount = [&]() -> absl::Status {
    std::optional<Checkpoint> written;
    absl::Status opened;
    if (shared || root) {
      auto checkpoint = Checkpoint::Open(directory);
      opened = checkpoint.status();
      if (checkpoint.ok()) written = *std::move(checkpoint);
    }
    if (!shared) {
      // Entered also by a rank 0 that cannot open the files, since the others are on their way into the collective.
      const absl::Status counted = RecountAtRoot(written ? &*written : nullptr, shards, masks, collective, tag);
      return opened.ok() ? counted : opened;
    }
    return opened.ok() ? Recount(*written, shards, masks) : opened;
  };
  if (request.recount) ESPALIER_RETURN_IF_ERROR(AgreeOn(recount(), collective, tag));
  // Last, since the disk has been at it while the bytes were counted.
  ESPALIER_RETURN_IF_ERROR(AgreeOn(SyncAll(written), collective, tag));
  ESPALIER_RETURN_IF_ERROR(AgreeOn(check(), collective, tag));

  if (root) {
    for (const PlannedFile& file : layout.weights) pending->sizes[file.name] = file.size;
    if (layout.masks) pending->sizes[layout.masks->name] = layout.masks->size;
    if (!layout.index.empty()) pending->sizes[kIndexName] = static_cast<int64_t>(layout.index.size());
    for (const auto& file : source.other_files()) {
      pending->sizes[fs::path(file->name()).filename().string()] = file->size();
    }
    pending_[directory] = std::move(pending);
  }
  return result;
}

namespace {

// Joins the checksums of ranges into those of files; every byte of every file must be in exactly one range.
absl::StatusOr<std::map<std::string, FileRecord>> JoinChecksums(const v1::PublishCheckpoint& request,
                                                                const std::map<std::string, int64_t>& sizes) {
  std::vector<const v1::RangeChecksum*> ranges;
  for (const v1::RangeChecksum& range : request.checksums()) {
    if (range.length() > 0) ranges.push_back(&range);
  }
  std::sort(ranges.begin(), ranges.end(), [](const v1::RangeChecksum* a, const v1::RangeChecksum* b) {
    return std::pair(absl::string_view(a->file()), a->offset()) < std::pair(absl::string_view(b->file()), b->offset());
  });
  const auto broken = [](absl::string_view file) {
    return MakeError(v1::ERROR_REASON_INVARIANT,
                     absl::StrCat("the checksums of the ranks do not cover ", file, "; nothing is saved"),
                     {{"what", "checksums with gaps"}, {"where", "PublishCheckpoint"}});
  };
  std::map<std::string, FileRecord> records;
  for (const auto& [name, size] : sizes) records[name] = {};
  for (const v1::RangeChecksum* range : ranges) {
    const auto it = records.find(range->file());
    if (it == records.end() || it->second.size != range->offset()) return broken(range->file());
    it->second.crc32 = Crc32Combine(it->second.crc32, range->crc32(), static_cast<uint64_t>(range->length()));
    it->second.size += range->length();
  }
  for (const auto& [name, size] : sizes) {
    if (records[name].size != size) return broken(name);
  }
  return records;
}

}  // namespace

absl::StatusOr<v1::PublishCheckpointResult> CheckpointSaver::Publish(const v1::PublishCheckpoint& request,
                                                                     absl::Duration deadline) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string target, roots_.Resolve(request.path()));
  const auto it = pending_.find(TemporaryPath(target, request.token()));
  if (it == pending_.end()) {
    return MakeError(v1::ERROR_REASON_ILLEGAL_TRANSITION,
                     absl::StrCat("nothing was saved for ", request.path(), " under the token ", request.token()),
                     {{"state", "not prepared"}});
  }
  // From here on the directory goes with this object unless it is kept.
  const std::unique_ptr<Pending> pending = std::move(it->second);
  pending_.erase(it);
  const std::string& directory = pending->directory->path();

  ESPALIER_ASSIGN_OR_RETURN(const auto records, JoinChecksums(request, pending->sizes));
  const std::string manifest = MakeManifest(request, records);
  ESPALIER_RETURN_IF_ERROR(WriteNewFile(absl::StrCat(directory, "/", kManifestName), manifest));
  ESPALIER_RETURN_IF_ERROR(SyncDirectory(absl::StrCat(directory, "/", kEspalierFolder)));
  ESPALIER_RETURN_IF_ERROR(SyncDirectory(directory));
  if (clock_.Monotonic() >= deadline) {
    return MakeError(v1::ERROR_REASON_DEADLINE,
                     absl::StrCat("publishing ", request.path(), " took too long; nothing is saved"),
                     {{"operation", "PublishCheckpoint"}});
  }
  ESPALIER_RETURN_IF_ERROR(MoveIntoPlace(directory, target, request.overwrite()));
  pending->directory->Keep();

  // The name is durable with the folder; what was replaced lies under the temporary name now.
  ESPALIER_RETURN_IF_ERROR(SyncDirectory(fs::path(target).parent_path().string()));
  std::error_code error;
  fs::remove(absl::StrCat(target, "/", kLockName), error);
  RemoveUnlessHeld(directory);

  v1::PublishCheckpointResult result;
  result.set_bytes_total(static_cast<int64_t>(manifest.size()));
  for (const auto& [name, record] : records) result.set_bytes_total(result.bytes_total() + record.size);
  return result;
}

void CheckpointSaver::Discard(absl::string_view path, absl::string_view token) {
  const auto target = roots_.Resolve(path);
  if (!target.ok()) return;
  const std::string directory = TemporaryPath(*target, token);
  if (pending_.erase(directory) == 0) RemoveUnlessHeld(directory);
}

}  // namespace espalier
