#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "espalier/v1/sparsification_service.pb.h"
#include "server/fleet/worker_registry.h"
#include "server/run/event_loop.h"
#include "server/run/group_call.h"
#include "server/run/observer.h"
#include "server/run/run_store.h"
#include "server/run/update_rules.h"
#include "server/run/upload_relay.h"

namespace espalier {

struct RunTimeouts {
  // Of commands that move no data; the others get as much again for every `bytes_per_second` of the model.
  absl::Duration command = absl::Minutes(2);
  int64_t bytes_per_second = 20'000'000;
  // How much longer than a command's deadline the coordinator waits for its answer.
  absl::Duration patience = absl::Seconds(5);
  // How long an error that only says that others are missing waits for the one that is; the lease of the fleet.
  absl::Duration blame = absl::Seconds(15);
  // How long another error waits for a better one from another rank.
  absl::Duration second_opinion = absl::Milliseconds(500);
  // How long workers may take to leave their group before a cancelled run is CANCELLED without them.
  absl::Duration leave = absl::Seconds(20);
  absl::Duration hold = absl::Hours(1);
  // A client that takes nothing of a parameter for this long is given up.
  absl::Duration read_stall = absl::Seconds(30);
  // Progress events come at most this often.
  absl::Duration progress = absl::Milliseconds(500);
};

// A temporary directory of a save that ended without being published, to be removed by whoever can.
struct Discard {
  std::string run;
  int64_t generation = 0;
  std::string path;
  std::string token;
};

// What a driver needs of what is around it. All outlive it.
struct RunSurroundings {
  EventLoop& loop;
  WorkerRegistry& registry;
  RunStore& store;
  Observer& observer;
  const RunTimeouts& timeouts;
  // An upload that this worker will open for this command belongs to this relay; null: no longer.
  std::function<void(const std::string& worker, int64_t command_id, std::shared_ptr<UploadRelay> relay)> expect_upload;
  std::function<void(const Discard&)> discard;
  // The run is terminal and its workers are let go; called last, once.
  std::function<void(const std::string& run)> ended;
};

// Takes one run from its claim to its end: one command at a time to all ranks, mask updates and what clients ask for in
// one order. Every command has a deadline; whatever fails, the run ends FAILED with the rank, the worker and the reason,
// and nothing is published. On the event loop only.
class RunDriver {
 public:
  using ReportSink = StreamSink<v1::ComputeSparsityReportResponse>;

  RunDriver(RunSurroundings around, RunEntry& entry);
  ~RunDriver();
  RunDriver(const RunDriver&) = delete;
  RunDriver& operator=(const RunDriver&) = delete;

  // The run is QUEUED and these workers, in order of ranks, are claimed for it.
  void Start(std::vector<std::string> workers);

  // ILLEGAL_TRANSITION once publishing has begun; STORAGE_UNWRITABLE: nothing changed. `extra` are rows to be journaled
  // with the change.
  absl::Status Cancel(const std::string& reason, const ExtraRows& extra);
  // Ends the hold. ILLEGAL_TRANSITION, STORAGE_UNWRITABLE.
  absl::Status Finish(const ExtraRows& extra);

  // ILLEGAL_TRANSITION unless RUNNING. The sink is ended when they return OK, later, in the order of the calls: with the
  // workers' error, WORKER_LOST or COLLECTIVE_TIMEOUT, CANCELLED or DRAINING, LIMIT_EXCEEDED where nobody reads or uploads.
  absl::Status Report(v1::ReportMode mode, std::shared_ptr<ReportSink> sink);
  absl::Status Gather(const v1::GatherParameter& op, std::shared_ptr<ChunkSink> sink);
  // Answers the operation as it starts. ILLEGAL_TRANSITION unless RUNNING, LIMIT_EXCEEDED with too many in the queue,
  // STORAGE_UNWRITABLE.
  absl::StatusOr<v1::Operation> Save(const v1::SaveCheckpointRequest& request, const ExtraRows& extra);
  // The operation after the call. OPERATION_NOT_FOUND.
  absl::StatusOr<v1::Operation> CancelOperation(const std::string& name, const ExtraRows& extra);

  // Ends the run FAILED; for a coordinator that stops.
  void Stop(const absl::Status& why) { Fail(why); }

  // Of the registry: what happened to a worker that is in this run or in none. The first may end the run, the second does.
  void OnSuspect(const std::string& worker, const std::string& reason);
  void OnLost(const std::string& worker, const std::string& reason);

 private:
  using Answers = std::vector<RankAnswer>;
  // What a client asked for; waits until the run is between commands.
  struct Demand {
    std::string operation;  // name of the operation, for saves
    std::function<void()> start;
    std::function<void(const absl::Status&)> abort;
  };
  struct SaveInFlight {
    std::string path;
    std::string token;
    bool overwrite = false;
    int64_t max_shard_bytes = 0;
    v1::CheckpointFormat format = v1::CHECKPOINT_FORMAT_UNSPECIFIED;
    std::string operation;  // empty: the run's own last save
    bool cancelled = false;
    bool publishing = false;
  };
  using ReportDone = std::function<void(records::ReportRecord)>;

  // --- run_driver.cc: from the claim to the end
  void OpenRendezvous();
  void JoinGroup(const std::string& store_address);
  void LoadModel();
  void Next();
  void CountUpdate();
  void PushUpdate(const v1::UpdateSpec& counting, const Answers& answers);
  void CommitUpdate(const v1::UpdateSpec& pushed, const Intent& intent, const Answers& answers);
  void MakeFinalReport();
  void Hold();
  void Succeed();

  // --- run_demands.cc: what a RUNNING run is asked for
  absl::Status MustRun(absl::string_view what) const;
  void Enqueue(Demand demand);
  // The demand in execution has ended.
  void EndDemand();
  void ComputeReport(v1::ReportMode mode, ReportDone done, std::function<void(const absl::Status&)> soft);
  void StartGather(const v1::GatherParameter& op, std::shared_ptr<ChunkSink> sink);
  void WatchReader(int64_t passed);
  void EndGather();

  // --- run_saves.cc: saves, also the one at the end
  void StartSave(SaveInFlight save);
  void SaveShards();
  void Publish(std::vector<v1::RangeChecksum> checksums);
  bool Asked() const;
  std::function<void(const absl::Status&)> OnSaveRefused();
  void EndSave(const absl::Status& status, int64_t bytes);
  void HoldAgain(const absl::Status& status, const ExtraRows& extra);
  void EndOperation(const std::string& name, const absl::Status& status, int64_t bytes, const ExtraRows& extra = {});
  void DiscardSave(std::function<void()> then);

  // --- run_calls.cc: commands to the group
  v1::Command NewCommand() const;
  // The same command to all ranks, then `done`. A failure ends the run, except that with `soft` one that left the group
  // whole goes there.
  void CallAll(const v1::Command& command, absl::Duration deadline, std::function<void(Answers)> done,
               std::function<void(const absl::Status&)> soft = {});
  void Call(const std::vector<std::optional<v1::Command>>& commands, absl::Duration deadline,
            std::function<void(Answers)> done, std::function<void(const absl::Status&)> soft = {});
  void OnProgress(const v1::CommandProgress& sum);
  // Tells the observer how the command in execution ended.
  void Observe(const std::vector<std::optional<RankAnswer>>& answers, const absl::Status& status);

  // --- run_faults.cc: what becomes of the run when one fails
  void OnRankError(int rank, const absl::Status& status);
  void OnEnded(std::vector<std::optional<RankAnswer>> answers);
  void OnExpired(const std::vector<int>& missing);
  // The worst of what the ranks reported, with rank and worker named.
  absl::Status Verdict() const;
  absl::Status NameRank(int rank, const absl::Status& status) const;
  absl::Status RankLost(int rank, const std::string& why) const;
  void Fail(const absl::Status& status);
  // Stops all that runs and fails all that waits.
  void StopWork(const absl::Status& why);
  // Lets the workers go; ends the run's life in this object.
  void LetGo(const std::string& void_reason);
  void OnLeft(int rank);
  void EndLife();

  absl::Duration DataDeadline(int64_t bytes) const;
  int64_t ModelBytes() const { return entry_.model.total_bytes(); }
  int world_size() const { return static_cast<int>(workers_.size()); }
  const v1::Run& run() const { return entry_.run; }
  absl::Time Wall() const { return around_.loop.clock().Wall(); }
  absl::Status Commit(const Happening& what, const std::function<void(v1::Run&)>& change, const ExtraRows& extra = {});
  bool CommitOrFail(const Happening& what, const std::function<void(v1::Run&)>& change, const ExtraRows& extra = {});

  const RunSurroundings around_;
  RunEntry& entry_;
  std::vector<std::string> workers_;
  std::vector<bool> gone_;  // by rank: lost, or left
  absl::flat_hash_map<std::string, const v1::Parameter*> parameters_;

  int next_update_ = 0;
  bool reported_ = false;     // the report after the last update was made
  bool update_open_ = false;  // an update is between intent and commit
  bool finishing_ = false;
  bool idle_ = false;  // RUNNING and between commands
  std::map<std::string, int64_t> planned_;
  uint64_t mask_digest_ = 0;
  std::optional<records::ReportRecord> report_;  // of the present mask version
  EventLoop::TimerId hold_timer_ = 0;

  std::deque<Demand> demands_;
  std::optional<Demand> serving_;
  std::optional<SaveInFlight> save_;
  std::shared_ptr<UploadRelay> relay_;
  std::pair<std::string, int64_t> upload_;  // worker, command
  std::optional<absl::Status> upload_end_;
  std::optional<absl::Status> gather_end_;
  EventLoop::TimerId read_timer_ = 0;

  std::unique_ptr<GroupCall> call_;
  absl::Duration call_began_;
  std::function<void(Answers)> call_done_;
  std::function<void(const absl::Status&)> call_soft_;
  std::vector<std::pair<int, absl::Status>> errors_;
  EventLoop::TimerId blame_timer_ = 0;
  absl::Duration last_progress_ = -absl::InfiniteDuration();
  std::string last_phase_;

  bool letting_go_ = false;
  EventLoop::TimerId leave_timer_ = 0;
  // Posted closures hold it weakly: they outlive the driver.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace espalier
