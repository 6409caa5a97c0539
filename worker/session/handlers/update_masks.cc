#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/checks.h"
#include "proto/support/errors.h"
#include "proto/support/fault_point.h"
#include "proto/support/log.h"
#include "proto/support/status_macros.h"
#include "worker/mask/digest.h"
#include "worker/mask/kernels.h"
#include "worker/select/select.h"
#include "worker/session/handlers/handlers.h"
#include "worker/session/handlers/pages.h"
#include "worker/session/handlers/update_inputs.h"
#include "worker/session/vote.h"

namespace espalier {
namespace {

// What a framework does that rebuilds its parameters behind our back: each parameter of the update gets another storage
// with the same bytes. Test builds alone come here.
absl::Status RebindAll(const UpdateInputs& update, ShardTable& shards) {
  for (size_t i = 0; i < update.size(); ++i) {
    const absl::Span<const std::byte> bytes = std::as_const(*update.shard(i).storage).bytes();
    ESPALIER_ASSIGN_OR_RETURN(std::shared_ptr<Storage> copy, Storage::Allocate(static_cast<int64_t>(bytes.size())));
    std::copy(bytes.begin(), bytes.end(), copy->bytes().begin());
    ESPALIER_RETURN_IF_ERROR(shards.Rebind(update.shard(i).parameter->name(), std::move(copy)));
  }
  return absl::OkStatus();
}

uint64_t HashRun(absl::string_view run) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : run) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

// Digest parts of the new masks, parallel to the parameters of the update.
std::vector<uint64_t> DigestsOf(const UpdateInputs& update, const std::vector<Bitmask>& masks) {
  std::vector<uint64_t> parts;
  for (size_t i = 0; i < masks.size(); ++i) {
    parts.push_back(MaskDigest(update.shard(i).parameter->name(), masks[i], update.shard(i).range));
  }
  return parts;
}

// All ranks say what they have selected. OK: all have, alike, and every rank knows it.
absl::Status TakeVote(WorkerState& state, const CommandContext& context, Collective& group,
                      const absl::StatusOr<Selection>& selection, const std::vector<uint64_t>& digests) {
  Vote vote;
  vote.ok = selection.ok();
  vote.rank = group.rank();
  vote.generation = state.generation;
  vote.version = context.command.update_masks().spec().version();
  vote.run_hash = HashRun(state.run);
  if (selection.ok()) vote.selection_hash = selection->hash;
  for (const uint64_t part : digests) vote.digest_part = AddDigests(vote.digest_part, part);
  const VoteRecord mine = EncodeVote(vote);
  std::vector<std::byte> all(kVoteBytes * static_cast<size_t>(group.world_size()));
  FaultHit("before_vote", group.rank());
  if (absl::Status status = group.AllGather({"vote", context.command.command_id()}, mine, absl::MakeSpan(all));
      !status.ok()) {
    state.Break(status);
    // The first cause says more than a vote that could not be held because of it.
    return selection.ok() ? status : selection.status();
  }
  FaultHit("after_vote", group.rank());
  const Verdict verdict = FoldVotes(all);
  if (verdict.adopt) return absl::OkStatus();
  // Where every rank refused alike nothing is in doubt, and the old masks stand.
  if (!verdict.all_refused) state.Break(verdict.status);
  return selection.ok() ? verdict.status : selection.status();
}

// Local and cannot fail. Writes through the spans of the selection.
void Swap(WorkerState& state, const v1::UpdateSpec& spec, const UpdateInputs& update, Selection selection,
          const std::vector<uint64_t>& digests, int rank) {
  for (size_t i = 0; i < update.size(); ++i) {
    const Shard& shard = update.shard(i);
    auto bits = std::make_shared<const Bitmask>(std::move(selection.masks[i]));
    ApplyMask(shard.parameter->dtype(), shard.storage->bytes(), *bits);
    ShardMask& mask = state.masks[shard.parameter->name()];
    mask.bits = std::move(bits);
    mask.version = spec.version();
    // What is only held is what it was: zeros that come on top break no group.
    if (spec.method() != v1::SELECTION_METHOD_CONSTANT) mask.structure = spec.structure();
    mask.planned = selection.pruned[i];
    state.SetDigest(shard.parameter->name(), digests[i]);
    if (i == 0) FaultHit("in_swap", rank);
  }
  state.SetMaskVersion(spec.version());
}

// The second path: each parameter is looked up by its name and read as reports and saves will read it.
absl::Status Verify(WorkerState& state, const CommandContext& context, const v1::UpdateSpec& spec, int rank,
                    UpdateCounts& counts) {
  absl::Status status;
  for (int i = 0; i < spec.parameters_size(); ++i) {
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, state.shards->Lookup(spec.parameters(i)));
    const Bitmask& mask = *state.masks.at(shard.parameter->name()).bits;
    const int64_t masked = mask.CountPruned();
    VerifyCounts found{.zeros = masked, .violations = 0};
    if (ChecksOn()) found = VerifyMask(shard.parameter->dtype(), std::as_const(*shard.storage).bytes(), mask);
    counts.counts.push_back(masked);
    counts.zeros.push_back(found.zeros);
    counts.violations.push_back(found.violations);
    if (status.ok() && (found.violations != 0 || found.zeros < masked)) {
      status = MakeError(v1::ERROR_REASON_MASK_NOT_EFFECTIVE,
                         absl::StrCat("the mask of ", spec.parameters(i), " is not in the live tensor of rank ", rank,
                                      ": ", masked, " elements must be zero, ", masked - found.violations,
                                      " are; the run is stopped, nothing is saved"),
                         {{"parameter", spec.parameters(i)},
                          {"want", absl::StrCat(masked)},
                          {"got", absl::StrCat(masked - found.violations)}});
    }
    context.progress("verify", i + 1, spec.parameters_size(), "parameters");
  }
  return status;
}

}  // namespace

absl::Status UpdateMasks(WorkerState& state, const CommandContext& context, CommandResult& result) {
  ESPALIER_ASSIGN_OR_RETURN(Collective * group, state.ModelOf(context.command, context.Left()));
  const v1::UpdateSpec& spec = context.command.update_masks().spec();
  const int64_t sent_before = group->bytes_sent();
  const int64_t parameters = spec.parameters_size();
  absl::Duration at = context.clock.Monotonic();
  const auto lap = [&] {
    const absl::Duration since = std::exchange(at, context.clock.Monotonic());
    return absl::ToDoubleSeconds(at - since);
  };
  v1::UpdateMasksResult& out = *result.ack.mutable_update_masks();

  ESPALIER_ASSIGN_OR_RETURN(const UpdateInputs update, UpdateInputs::LookUp(spec, *state.shards, state.masks));
  context.progress("select", 0, parameters, "parameters");
  absl::StatusOr<Selection> selection = Select(spec, update.inputs(), *group, context.command.command_id());
  if (FaultHit("after_select", group->rank()) == "rebind") ESPALIER_RETURN_IF_ERROR(RebindAll(update, *state.shards));
  std::vector<uint64_t> digests;
  if (selection.ok()) digests = DigestsOf(update, selection->masks);
  out.set_select_seconds(lap());

  context.progress("vote", 0, parameters, "parameters");
  // Whatever came of the selection: a rank that stayed away would leave the others waiting.
  ESPALIER_RETURN_IF_ERROR(TakeVote(state, context, *group, selection, digests));
  out.set_vote_seconds(lap());

  out.set_version(spec.version());
  out.set_selection_hash(selection->hash);
  out.set_pruned_nans(selection->pruned_nans);
  Swap(state, spec, update, *std::move(selection), digests, group->rank());
  out.set_mask_digest(state.MasksDigest());
  out.set_swap_seconds(lap());

  UpdateCounts counts;
  if (absl::Status status = Verify(state, context, spec, group->rank(), counts); !status.ok()) {
    state.Break(status);
    return status;
  }
  out.set_verify_seconds(lap());
  AppendCountPages(counts, result.pages);
  out.set_bytes_sent(group->bytes_sent() - sent_before);
  return absl::OkStatus();
}

}  // namespace espalier
