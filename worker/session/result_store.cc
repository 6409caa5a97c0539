#include "worker/session/result_store.h"

#include <utility>

namespace espalier {

void ResultStore::SetCoordinator(const std::string& instance_id) {
  if (instance_id == instance_id_) return;
  instance_id_ = instance_id;
  results_.clear();
  forgotten_ = 0;
}

std::shared_ptr<const CommandResult> ResultStore::Find(int64_t command_id) const {
  const auto it = results_.find(command_id);
  return it == results_.end() ? nullptr : it->second;
}

void ResultStore::Put(int64_t command_id, std::shared_ptr<const CommandResult> result) {
  results_[command_id] = std::move(result);
  if (results_.size() <= kKept) return;
  forgotten_ = results_.begin()->first;
  results_.erase(results_.begin());
}

}  // namespace espalier
