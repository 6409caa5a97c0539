#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "espalier/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/path_roots.h"
#include "worker/checkpoint/save.h"
#include "worker/collective/collective.h"
#include "worker/mask/mask_table.h"
#include "worker/session/group.h"
#include "worker/session/holding.h"
#include "worker/session/parameter_upload.h"
#include "worker/shard/shard_table.h"

namespace espalier {

// What a worker works with, whatever run it serves.
struct WorkerServices {
  PathRoots roots;
  GroupFactory* groups = nullptr;
  Holding* holding = nullptr;
  const Clock* clock = nullptr;
  UploadTarget uploads;
};

// What a worker holds for the run it serves. Not thread-safe: the executor alone uses it.
class WorkerState {
 public:
  explicit WorkerState(WorkerServices services);

  const WorkerServices& services() const { return services_; }

  // Becomes a member of a group; what was held before is gone.
  void Join(const std::string& run, int64_t generation, std::shared_ptr<Collective> collective);
  // Frees the model, leaves the group, removes saves that were not published.
  void Leave();

  // ILLEGAL_TRANSITION unless the worker is a member of this command's group; the error that broke the generation, once
  // one did. Sets the deadline of the group to the command's.
  absl::StatusOr<Collective*> GroupOf(const v1::Command& command, absl::Duration left);
  // The same, and the model must be loaded.
  absl::StatusOr<Collective*> ModelOf(const v1::Command& command, absl::Duration left);

  // Takes over a model that was read; `digests` are this shard's parts of the digests of `masks`, by parameter.
  void Load(Checkpoint checkpoint, ShardTable table, MaskTable stored, std::map<std::string, uint64_t> digests);

  // Nothing of this generation is served any more. The first cause stays.
  void Break(const absl::Status& cause);

  // Sets the digest part of one parameter's mask.
  void SetDigest(const std::string& parameter, uint64_t part) { digests_[parameter] = part; }
  // This shard's part of the digest of all masks.
  uint64_t MasksDigest() const;
  void SetMaskVersion(int64_t version);

  std::string run;
  int64_t generation = 0;
  std::shared_ptr<Collective> collective;
  std::optional<Checkpoint> source;  // the model as it lies on disk, held open
  std::optional<ShardTable> shards;
  MaskTable masks;
  int64_t mask_version = 0;
  std::unique_ptr<CheckpointSaver> saver;

 private:
  void Free();

  const WorkerServices services_;
  absl::Status broken_;
  std::map<std::string, uint64_t> digests_;
};

}  // namespace espalier
