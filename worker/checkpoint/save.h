#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/path_roots.h"
#include "worker/collective/collective.h"
#include "worker/mask/mask_table.h"
#include "worker/shard/shard_table.h"

namespace espalier {

// Files are split where the hub's are.
inline constexpr int64_t kDefaultMaxShardBytes = 5'000'000'000;

struct SaveRequest {
  std::string path;
  bool overwrite = false;
  // Makes the temporary directory's name unique. Characters but letters and digits become '-'.
  std::string token;
  int64_t max_shard_bytes = kDefaultMaxShardBytes;  // 0: the default
  v1::CheckpointFormat format = v1::CHECKPOINT_FORMAT_UNSPECIFIED;
  int64_t command_id = 0;  // for the tags of collectives
  // Time at which the save is given up, on the clock's Monotonic(). Ranks agree on it, none leaves alone.
  absl::Duration deadline = absl::InfiniteDuration();
  // Counts from the files what was written, as every save of the product does.
  bool recount = true;
  // Bytes this rank has written.
  ByteProgress progress = [](int64_t, int64_t) {};
};

// May a checkpoint of the model at `model` (may be empty) be written to `path`? Asked before any work: OUTPUT_EXISTS (a
// directory, and no `overwrite`; or with `overwrite` something that does not look like a checkpoint, or that the model
// lies in: the only copy of a dense model is not to go by a slip), STORAGE_UNWRITABLE (the nearest existing folder is not
// one, or not writable; a mount point), PATH_NOT_ALLOWED. Answers the resolved path.
absl::StatusOr<std::string> CheckOutput(absl::string_view path, bool overwrite, const PathRoots& roots,
                                        absl::string_view model);

// Writes checkpoints, all ranks at once. One per process: it holds the locks of saves that are neither published nor
// discarded; discards them when it goes. Not thread-safe: the executor alone uses it.
class CheckpointSaver {
 public:
  explicit CheckpointSaver(PathRoots roots = {}, const Clock& clock = SystemClock());
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Entered by all ranks, with equal requests. Rank 0 makes `.<name>.espalier-<token>` beside the target, with a locked
  // file in it, the weight files at full size with their headers, and copies of the source's other files; every rank
  // writes its ranges and the rows of its masks, syncs, and counts from the files what it wrote. Where ranks do not see
  // the directory of rank 0, it receives their ranges in bounded chunks and writes. Answers the checksums of this rank's
  // ranges; what rank 0 wrote alone is in its own.
  //
  // Errors are the same on all ranks and name the rank: those of CheckOutput; STORAGE_UNWRITABLE (path, errno; also when
  // there is too little space, found before anything is written); LIMIT_EXCEEDED (a header readers would refuse);
  // MASK_NOT_EFFECTIVE (the files do not hold what the live tensors should); DEADLINE; those of Collective. After an
  // error nothing is left of the directory.
  absl::StatusOr<v1::SaveShardsResult> SaveShards(const SaveRequest& request, const Checkpoint& source,
                                                  const ShardTable& shards, const MaskTable& masks,
                                                  Collective& collective);

  // On rank 0, after all ranks have answered: writes index and espalier/espalier.json, syncs, looks at the deadline once
  // more (DEADLINE), and gives the directory its final name. A directory under its final name is complete.
  // ILLEGAL_TRANSITION without such a save; OUTPUT_EXISTS; STORAGE_UNWRITABLE; INVARIANT when the checksums do not cover
  // the files. After an error nothing is left of the directory, and an older one under the final name is untouched.
  absl::StatusOr<v1::PublishCheckpointResult> Publish(const v1::PublishCheckpoint& request,
                                                      absl::Duration deadline = absl::InfiniteDuration());

  // Removes the temporary directory of a save that will not be published, also one that another process left behind and
  // nobody holds locked. Never fails.
  void Discard(absl::string_view path, absl::string_view token);

 private:
  struct Pending;
  const PathRoots roots_;
  const Clock& clock_;
  std::map<std::string, std::unique_ptr<Pending>> pending_;  // by temporary directory
};

}  // namespace espalier
