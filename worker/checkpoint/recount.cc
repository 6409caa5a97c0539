#include "worker/checkpoint/recount.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/count.h"
#include "worker/mask/kernels.h"

namespace espalier {
namespace {

absl::Status Compare(const std::string& parameter, const FileCounts& live, const FileCounts& file) {
  if (live.violations == 0 && file.violations == 0 && live.zeros == file.zeros && live.masked == file.masked) {
    return absl::OkStatus();
  }
  const auto say = [](const FileCounts& c) {
    return absl::StrCat(c.zeros, " zeros, ", c.masked, " masked and ", c.violations, " weights under the mask");
  };
  return MakeError(v1::ERROR_REASON_MASK_NOT_EFFECTIVE,
                   absl::StrCat("parameter ", parameter, ": the files that were written hold ", say(file),
                                ", the live tensor has ", say(live), "; nothing is saved"),
                   {{"parameter", parameter}, {"want", say(live)}, {"got", say(file)}});
}

absl::StatusOr<FileCounts> CountLive(const std::string& name, const ShardTable& shards, const MaskTable& masks) {
  ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(name));
  const auto mask = masks.find(name);
  if (mask == masks.end()) {
    return FileCounts{.zeros = CountZeros(shard.parameter->dtype(), shard.storage->bytes())};
  }
  const VerifyCounts counts = VerifyMask(shard.parameter->dtype(), shard.storage->bytes(), *mask->second.bits);
  return FileCounts{.zeros = counts.zeros, .masked = mask->second.bits->CountPruned(), .violations = counts.violations};
}

absl::Status CheckNames(const Checkpoint& written, const ShardTable& shards) {
  const auto& parameters = written.description().parameters();
  const auto& names = shards.names();
  bool same = static_cast<size_t>(parameters.size()) == names.size();
  for (size_t i = 0; same && i < names.size(); ++i) same = parameters[static_cast<int>(i)].name() == names[i];
  if (same) return absl::OkStatus();
  return MakeError(v1::ERROR_REASON_INVARIANT, "the files that were written do not hold the model's parameters",
                   {{"what", "other parameters"}, {"where", "Recount"}});
}

}  // namespace

absl::Status Recount(const Checkpoint& written, const ShardTable& shards, const MaskTable& masks) {
  ESPALIER_RETURN_IF_ERROR(CheckNames(written, shards));
  std::vector<std::byte> buffer;
  for (size_t i = 0; i < shards.names().size(); ++i) {
    const std::string& name = shards.names()[i];
    ESPALIER_ASSIGN_OR_RETURN(const FileCounts live, CountLive(name, shards, masks));
    ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards.Lookup(name));
    ESPALIER_ASSIGN_OR_RETURN(const FileCounts file, CountRange(written, i, shard.range, buffer));
    ESPALIER_RETURN_IF_ERROR(Compare(name, live, file));
  }
  return absl::OkStatus();
}

absl::Status RecountAtRoot(const Checkpoint* written, const ShardTable& shards, const MaskTable& masks,
                           Collective& collective, const CollectiveTag& tag) {
  std::vector<int64_t> sums;
  absl::Status mine;
  for (const std::string& name : shards.names()) {
    const auto live = CountLive(name, shards, masks);
    if (!live.ok() && mine.ok()) mine = live.status();
    const FileCounts counts = live.ok() ? *live : FileCounts();
    sums.insert(sums.end(), {counts.zeros, counts.masked, counts.violations});
  }
  if (!sums.empty()) {
    ESPALIER_RETURN_IF_ERROR(collective.AllReduce(tag, absl::MakeSpan(sums), ReduceOp::kSum));
  }
  if (!mine.ok() || written == nullptr) return mine;
  ESPALIER_RETURN_IF_ERROR(CheckNames(*written, shards));
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<FileCounts> files, CountAll(*written, {}));
  for (size_t i = 0; i < files.size(); ++i) {
    const FileCounts live = {.zeros = sums[3 * i], .masked = sums[3 * i + 1], .violations = sums[3 * i + 2]};
    ESPALIER_RETURN_IF_ERROR(Compare(shards.names()[i], live, files[i]));
  }
  return absl::OkStatus();
}

}  // namespace espalier
