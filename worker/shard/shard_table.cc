#include "worker/shard/shard_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

absl::Status Invariant(absl::string_view name, absl::string_view what) {
  return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("parameter ", name, ": ", what),
                   {{"what", std::string(what)}, {"where", "ShardTable"}});
}

absl::Status NotFound(absl::string_view name) {
  return MakeError(v1::ERROR_REASON_PARAMETER_NOT_FOUND, absl::StrCat("the model has no parameter ", name),
                   {{"parameter", std::string(name)}});
}

absl::Status CheckSize(const v1::Parameter& parameter, ShardRange range, const std::shared_ptr<Storage>& storage) {
  if (storage == nullptr) return Invariant(parameter.name(), "no storage");
  const int64_t have = static_cast<int64_t>(storage->bytes().size());
  const int64_t want = range.size() * DtypeSize(parameter.dtype());
  if (have == want) return absl::OkStatus();
  return Invariant(parameter.name(), absl::StrCat("storage of ", have, " bytes where the range takes ", want));
}

}  // namespace

absl::Status ShardTable::Add(const v1::Parameter& parameter, ShardRange range, std::shared_ptr<Storage> storage) {
  const std::string& name = parameter.name();
  const auto taken = [this](const std::string& key) { return entries_.contains(key) || aliases_.contains(key); };
  if (taken(name)) return Invariant(name, "added twice");
  if (const auto it = std::find_if(parameter.aliases().begin(), parameter.aliases().end(), taken);
      it != parameter.aliases().end()) {
    return Invariant(name, absl::StrCat("its alias ", *it, " is there already"));
  }
  if (DtypeSize(parameter.dtype()) == 0) return Invariant(name, "no dtype");
  if (range.begin < 0 || range.end < range.begin || range.end > NumElements(parameter.shape())) {
    return Invariant(name, absl::StrCat("range ", range.begin, " to ", range.end, " outside the parameter"));
  }
  if (absl::Status status = CheckSize(parameter, range, storage); !status.ok()) return status;

  for (const std::string& alias : parameter.aliases()) aliases_.emplace(alias, name);
  names_.insert(std::lower_bound(names_.begin(), names_.end(), name), name);
  total_bytes_ += static_cast<int64_t>(storage->bytes().size());
  entries_.emplace(name, Entry{std::make_unique<const v1::Parameter>(parameter), range, std::move(storage)});
  return absl::OkStatus();
}

absl::StatusOr<Shard> ShardTable::Lookup(absl::string_view name) const {
  const std::string key(name);
  auto it = entries_.find(key);
  if (const auto alias = aliases_.find(key); it == entries_.end() && alias != aliases_.end()) {
    it = entries_.find(alias->second);
  }
  if (it == entries_.end()) return NotFound(name);
  return Shard{it->second.parameter.get(), it->second.range, it->second.storage};
}

absl::Status ShardTable::Rebind(absl::string_view name, std::shared_ptr<Storage> storage) {
  const std::string key(name);
  auto it = entries_.find(key);
  if (const auto alias = aliases_.find(key); it == entries_.end() && alias != aliases_.end()) {
    it = entries_.find(alias->second);
  }
  if (it == entries_.end()) return NotFound(name);
  if (absl::Status status = CheckSize(*it->second.parameter, it->second.range, storage); !status.ok()) return status;
  it->second.storage = std::move(storage);
  return absl::OkStatus();
}

}  // namespace espalier
