#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "worker/session/command_result.h"

namespace espalier {

// Results of executed commands, so that a command that is sent again is answered and not executed again. Keeps the last
// few: the coordinator waits for each before it goes on. Not thread-safe: the executor alone uses it.
class ResultStore {
 public:
  static constexpr size_t kKept = 16;

  // Command ids count within one process of the coordinator: those of another one mean other commands.
  void SetCoordinator(const std::string& instance_id);

  // Null for a command that was not executed.
  std::shared_ptr<const CommandResult> Find(int64_t command_id) const;
  // Executed so long ago that its result is no longer kept.
  bool Forgotten(int64_t command_id) const { return command_id <= forgotten_; }
  void Put(int64_t command_id, std::shared_ptr<const CommandResult> result);

 private:
  std::string instance_id_;
  std::map<int64_t, std::shared_ptr<const CommandResult>> results_;
  int64_t forgotten_ = 0;
};

}  // namespace espalier
