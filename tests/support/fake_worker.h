#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "espalier/v1/model.pb.h"
#include "espalier/v1/worker_service.pb.h"

namespace espalier::testing {

// A model of linear layers `names`, each of [8, 16], without a single zero.
v1::ModelDescription FakeModel(const std::vector<std::string>& names);

// What a checkpoint worker says to what it is told, without tensors: masks are counts, split evenly over the ranks.
// Scripts change single answers: lose them, delay them, make them lie. Not thread-safe.
class FakeWorker {
 public:
  using Messages = std::vector<v1::WorkerMessage>;
  // Sees the command and what would be answered, and may change that.
  using Script = std::function<void(const v1::Command& command, Messages& answers)>;

  FakeWorker(std::string name, v1::ModelDescription model);

  // The first message of a session; tells what it holds.
  v1::WorkerMessage Hello() const;
  v1::WorkerMessage Heartbeat() const;
  // What it says to one message. Parts of a command are answered when the last has come.
  Messages Take(const v1::CoordinatorMessage& message);

  // For every command of that op ("UpdateMasks").
  void On(const std::string& operation, Script script) { scripts_[operation] = std::move(script); }
  void Clear() { scripts_.clear(); }

  // A new process of the same name.
  void Restart();

  const std::string& name() const { return name_; }
  const std::string& incarnation() const { return incarnation_; }
  int rank() const { return rank_; }
  // Ops in the order in which they were executed, and how often UpdateMasks was, by version.
  const std::vector<std::string>& executed() const { return executed_; }
  bool dismissed() const { return dismissed_; }
  const std::vector<v1::VoidGeneration>& voided() const { return voided_; }
  const v1::Command& last(const std::string& operation) { return last_[operation]; }
  v1::Heartbeat& heartbeat() { return heartbeat_; }

 private:
  Messages Execute(const v1::Command& command);
  void Count(const v1::Command& command, Messages& answers) const;
  void Update(const v1::Command& command, Messages& answers, v1::Ack& ack);
  void Report(Messages& answers) const;
  int64_t Share(int64_t whole) const;

  const std::string name_;
  const v1::ModelDescription model_;
  std::string incarnation_;
  std::string coordinator_;  // instance that it talks to
  std::map<std::string, Script> scripts_;
  v1::Command partial_;
  std::map<int64_t, Messages> stored_;  // by command id: a resend is answered alike
  std::vector<std::string> executed_;
  std::map<std::string, v1::Command> last_;
  std::vector<v1::VoidGeneration> voided_;
  v1::Heartbeat heartbeat_;
  bool dismissed_ = false;
  std::string run_;
  int64_t generation_ = 0;
  int rank_ = 0;
  int world_size_ = 1;
  int64_t version_ = 0;
  std::map<std::string, int64_t> masked_;  // full parameters
};

// An ack of `command` that failed.
v1::WorkerMessage FailedAck(const v1::Command& command, v1::ErrorReason reason, const std::string& message);

}  // namespace espalier::testing
