#include "worker/session/worker_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/mask/digest.h"

namespace espalier {

WorkerState::WorkerState(WorkerServices services) : services_(std::move(services)) {
  Leave();
}

void WorkerState::Join(const std::string& new_run, int64_t new_generation, std::shared_ptr<Collective> group) {
  Free();
  run = new_run;
  generation = new_generation;
  collective = std::move(group);
  services_.holding->SetGroup(run, generation, collective->rank(), collective);
}

void WorkerState::Leave() {
  Free();
  services_.groups->CloseStore();
}

void WorkerState::Free() {
  services_.holding->Clear();
  run.clear();
  generation = mask_version = 0;
  masks.clear();
  digests_.clear();
  // The group first: what it aborts could be what an accelerator waits for before it gives memory back.
  collective.reset();
  shards.reset();
  source.reset();
  broken_ = absl::OkStatus();
  // Before a new one is made: it discards what was not published.
  saver.reset();
  saver = std::make_unique<CheckpointSaver>(services_.roots, *services_.clock);
}

absl::StatusOr<Collective*> WorkerState::GroupOf(const v1::Command& command, absl::Duration left) {
  if (collective == nullptr || command.run() != run || command.generation() != generation) {
    return MakeError(
        v1::ERROR_REASON_ILLEGAL_TRANSITION,
        absl::StrCat("the worker is not in generation ", command.generation(), " of ", command.run(), "; it ",
                     run.empty() ? "is idle" : absl::StrCat("holds generation ", generation, " of ", run)),
        {{"run", command.run()}, {"state", run.empty() ? "idle" : run}});
  }
  ESPALIER_RETURN_IF_ERROR(broken_);
  // A deadline that has passed is found in the collective, by all ranks, not by one alone before it.
  collective->SetDeadline(std::max(left, absl::Milliseconds(1)));
  return collective.get();
}

absl::StatusOr<Collective*> WorkerState::ModelOf(const v1::Command& command, absl::Duration left) {
  ESPALIER_ASSIGN_OR_RETURN(Collective * group, GroupOf(command, left));
  if (!shards) {
    return MakeError(v1::ERROR_REASON_ILLEGAL_TRANSITION, "no model is loaded; LoadModel comes first",
                     {{"run", run}, {"state", "joined"}});
  }
  return group;
}

void WorkerState::Load(Checkpoint checkpoint, ShardTable table, MaskTable stored,
                       std::map<std::string, uint64_t> digests) {
  source = std::move(checkpoint);
  shards = std::move(table);
  masks = std::move(stored);
  digests_ = std::move(digests);
  SetMaskVersion(0);
}

void WorkerState::Break(const absl::Status& cause) {
  if (broken_.ok()) broken_ = cause;
}

uint64_t WorkerState::MasksDigest() const {
  uint64_t sum = 0;
  for (const auto& [name, part] : digests_) sum = AddDigests(sum, part);
  return sum;
}

void WorkerState::SetMaskVersion(int64_t version) {
  mask_version = version;
  services_.holding->SetMasks(version, MasksDigest());
}

}  // namespace espalier
