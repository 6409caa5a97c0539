#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "espalier/v1/worker_service.pb.h"
#include "server/fleet/worker_registry.h"
#include "server/run/event_loop.h"
#include "server/run/update_rules.h"

namespace espalier {

// What one rank answered to a command.
struct RankAnswer {
  v1::Ack ack;
  RankCounts counts;
  std::vector<v1::ParameterSparsity> rows;
  std::vector<v1::RangeChecksum> checksums;
};

// One command to several ranks of a group at once. Destroying it forgets the answers. On the event loop only.
class GroupCall {
 public:
  struct Callbacks {
    // A rank ended with an error. Called before Ended.
    std::function<void(int rank, const absl::Status& status)> error;
    // Every rank has ended: nullopt for those that failed. Called once.
    std::function<void(std::vector<std::optional<RankAnswer>> answers)> ended;
    // The deadline passed with these ranks owing an answer. Called at most once, and then never `ended`.
    std::function<void(const std::vector<int>& missing)> expired;
    // Over all ranks, from the last progress of each.
    std::function<void(const v1::CommandProgress& sum)> progress;
  };

  // `commands[i]` goes to `workers[i]`; nullopt: that rank is left out. `deadline` is written into the commands;
  // `patience` is what the coordinator waits longer than that.
  GroupCall(EventLoop& loop, WorkerRegistry& registry, std::vector<std::string> workers,
            const std::vector<std::optional<v1::Command>>& commands, absl::Duration deadline, absl::Duration patience,
            Callbacks callbacks);
  ~GroupCall();
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

  // Sends. Callbacks may come from inside, and may destroy the call.
  void Start();

  // Id of the command at this rank; 0 when it was left out.
  int64_t command_id(int rank) const { return ranks_[static_cast<size_t>(rank)].command_id; }
  const std::string& operation() const { return operation_; }
  // Ranks that owe an answer.
  std::vector<int> Owing() const;

 private:
  struct Rank {
    std::vector<v1::Command> parts;
    int64_t command_id = 0;
    bool open = false;
    bool failed = false;
    RankAnswer answer;
    std::map<std::string, v1::ParameterSparsity> rows;  // by name: a page may come twice
    std::map<int64_t, v1::ChecksumPage> checksums;      // by place, likewise
    v1::CommandProgress progress;
  };

  void OnPage(int rank, const v1::ResultPage& page);
  void OnProgress(int rank, const v1::CommandProgress& progress);
  void OnDone(int rank, absl::StatusOr<v1::Ack> ack);
  void EndIfAllEnded();

  EventLoop& loop_;
  WorkerRegistry& registry_;
  const std::vector<std::string> workers_;
  const absl::Duration wait_;
  const Callbacks callbacks_;
  std::string operation_;
  std::vector<Rank> ranks_;
  EventLoop::TimerId timer_ = 0;
  // Tells closures and callers up the stack that the call is gone.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// "UpdateMasks".
std::string OperationOf(const v1::Command& command);

}  // namespace espalier
