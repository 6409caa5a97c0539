#include "worker/checkpoint/load.h"

#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/input_file.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/mask_file.h"
#include "worker/mask/digest.h"
#include "worker/select/groups.h"
#include "worker/session/handlers/handlers.h"

namespace espalier {
namespace {

constexpr char kWhatToDo[] = "; remove the file, or start from the weights alone (--ignore-stored-masks)";

// What the manifest beside stored masks says of them: N:M, which the groups of this rank's range must bear out. Masks may
// come without one.
absl::Status LabelMasks(const Checkpoint& checkpoint, const PathRoots& roots, const ShardTable& shards,
                        MaskTable& masks) {
  const std::string path = absl::StrCat(checkpoint.directory(), "/", kManifestName);
  std::error_code error;
  if (masks.empty() || !std::filesystem::exists(path, error)) return absl::OkStatus();
  ESPALIER_ASSIGN_OR_RETURN(const std::string resolved, roots.Resolve(path));
  ESPALIER_ASSIGN_OR_RETURN(const auto file, InputFile::Open(resolved, path));
  ESPALIER_ASSIGN_OR_RETURN(const std::string text, file->ReadText(kMaxManifestBytes));
  const absl::StatusOr<Manifest> manifest = ParseManifest(text, path);
  if (!manifest.ok()) {
    return MakeError(ReasonOf(manifest.status()), absl::StrCat(manifest.status().message(), kWhatToDo),
                     {{"file", path}, {"what", MetadataOf(manifest.status(), "what")}});
  }
  for (const v1::ParameterSparsity& row : manifest->report.rows) {
    const auto mask = masks.find(row.name());
    const v1::MaskStructure& structure = row.structure();
    if (mask == masks.end() || structure.m() == 0) continue;
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(row.name()));
    const auto layout = GroupLayoutOf(*shard.parameter, structure);
    if (!layout.ok() || CrowdedGroups(*layout, *mask->second.bits, shard.range) != 0) {
      return CheckpointInvalid(
          path, row.name(),
          absl::StrCat("is said to be ", structure.n(), ":", structure.m(), ", and its mask is not", kWhatToDo));
    }
    mask->second.structure = structure;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadModel(WorkerState& state, const CommandContext& context, CommandResult& result) {
  ESPALIER_ASSIGN_OR_RETURN(Collective * group, state.GroupOf(context.command, context.Left()));
  const v1::LoadModel& op = context.command.load_model();
  CheckpointOptions options;
  options.ignore_stored_masks = op.ignore_stored_masks();
  options.roots = state.services().roots;
  ESPALIER_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(op.path(), options));
  ESPALIER_ASSIGN_OR_RETURN(
      ShardTable shards, LoadShards(checkpoint, group->rank(), group->world_size(), [&](int64_t done, int64_t total) {
        context.progress("load", done, total, "bytes");
      }));
  ESPALIER_ASSIGN_OR_RETURN(MaskTable masks, LoadStoredMasks(checkpoint, shards));
  ESPALIER_RETURN_IF_ERROR(LabelMasks(checkpoint, options.roots, shards, masks));
  std::map<std::string, uint64_t> digests;
  for (const auto& [name, mask] : masks) {
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(name));
    digests[name] = MaskDigest(name, *mask.bits, shard.range);
  }
  state.Load(std::move(checkpoint), std::move(shards), std::move(masks), std::move(digests));
  result.ack.mutable_load_model()->set_shard_bytes(state.shards->total_bytes());
  result.ack.mutable_load_model()->set_mask_digest(state.MasksDigest());
  return absl::OkStatus();
}

}  // namespace espalier
