#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/model.pb.h"
#include "worker/shard/shard_range.h"
#include "worker/shard/storage.h"

namespace espalier {

// What one rank holds of one parameter, as it is at the moment of the look-up. Holding it keeps the storage alive, and
// says nothing about what the table holds later: look up afresh for every update, report and save.
struct Shard {
  const v1::Parameter* parameter = nullptr;  // owned by the table, never changes
  ShardRange range;
  std::shared_ptr<Storage> storage;  // range.size() elements of parameter->dtype()
};

// The live tensors of one rank by canonical name: the only place where they are to be found. Not thread-safe: the
// executor alone uses it.
class ShardTable {
 public:
  ShardTable(int rank, int world_size) : rank_(rank), world_size_(world_size) {}
  ShardTable(ShardTable&&) = default;
  ShardTable& operator=(ShardTable&&) = default;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // Adds a parameter with its bytes. INVARIANT when the name is there already or the size does not fit the range.
  absl::Status Add(const v1::Parameter& parameter, ShardRange range, std::shared_ptr<Storage> storage);

  // The live shard of a canonical name or alias. PARAMETER_NOT_FOUND.
  absl::StatusOr<Shard> Lookup(absl::string_view name) const;

  // Puts another storage under a name, as a framework does that rebuilds its parameters. INVARIANT on a size that does
  // not fit, PARAMETER_NOT_FOUND.
  absl::Status Rebind(absl::string_view name, std::shared_ptr<Storage> storage);

  // Canonical names without aliases, sorted bytewise; the same on every rank.
  const std::vector<std::string>& names() const { return names_; }

  // Bytes of all shards of this rank.
  int64_t total_bytes() const { return total_bytes_; }

 private:
  struct Entry {
    std::unique_ptr<const v1::Parameter> parameter;  // stable address for Shard
    ShardRange range;
    std::shared_ptr<Storage> storage;
  };
  int rank_;
  int world_size_;
  int64_t total_bytes_ = 0;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> aliases_;
  std::vector<std::string> names_;
};

}  // namespace espalier
