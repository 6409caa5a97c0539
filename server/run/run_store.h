#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/model.pb.h"
#include "espalier/v1/plan.pb.h"
#include "espalier/v1/resources.pb.h"
#include "espalier/v1/sparsification_service.pb.h"
#include "proto/support/clock.h"
#include "server/run/observer.h"
#include "server/run/records.pb.h"
#include "server/run/stream_sink.h"
#include "server/store/journal.h"

namespace espalier {

// All that is known of one run.
struct RunEntry {
  // Without its plan.
  v1::Run run;
  int64_t sequence = 0;
  v1::RunSpec spec;
  v1::Plan plan;
  v1::PlanSummary summary;
  v1::ModelDescription model;
  // The last ones, oldest first.
  std::deque<v1::RunEvent> events;
  std::optional<records::ReportRecord> report;
  std::map<std::string, records::SaveRecord> saves;  // by token, those that have not ended
};

// What happened; becomes an event.
struct Happening {
  std::string type;
  std::string message;
  std::optional<v1::RunProgress> progress;
};

// Rows that must stand or fall with a change, made from the run after it.
using ExtraRows = std::function<std::vector<JournalRecord>(const v1::Run&)>;

// All runs, their events and who watches them. Every change is one event and one append to the journal, which is written
// before anybody is told. Not thread-safe: the event loop owns it.
class RunStore {
 public:
  struct Options {
    size_t max_events = 10'000;
    size_t max_watchers = 1000;
  };
  using WatcherId = int64_t;
  using Sink = StreamSink<v1::RunEvent>;

  // All outlive it.
  RunStore(Journal& journal, const Clock& clock, Observer& observer, const Options& options);

  // Takes the rows that concern runs. Of events that have a gap, which a ForceCommit leaves that could not be journaled, those
  // after it are kept. JOURNAL_CORRUPT when one does not parse.
  absl::Status Load(const std::vector<JournalRecord>& rows);

  // A new run in QUEUED, with its first event. Sets name, revision, times. STORAGE_UNWRITABLE: nothing was made.
  absl::StatusOr<RunEntry*> Create(RunEntry entry, const ExtraRows& extra);

  // Null without.
  RunEntry* Find(absl::string_view name);
  // The same, or RUN_NOT_FOUND; REQUEST_INVALID for what is no name.
  absl::StatusOr<RunEntry*> Get(absl::string_view name);
  // By order of creation.
  const std::map<int64_t, RunEntry*>& ordered() const { return ordered_; }

  // Applies `change`, raises the revision, journals run, event and `extra`, tells the watchers. On an error nothing has
  // changed.
  absl::Status Commit(RunEntry& entry, const Happening& what, const std::function<void(v1::Run&)>& change,
                      const ExtraRows& extra = {});
  // The same, but the change happens whether it could be journaled or not: for ends that cannot be put off.
  void ForceCommit(RunEntry& entry, const Happening& what, const std::function<void(v1::Run&)>& change,
                   const ExtraRows& extra = {});

  // Tells watchers that have nothing else to read, now; the event repeats the last revision and is not kept, nor is `change`
  // journaled before the next commit.
  void Tell(RunEntry& entry, const Happening& what, const std::function<void(v1::Run&)>& change);

  // Forgets the run; watchers end with RUN_NOT_FOUND.
  absl::Status Delete(RunEntry& entry, const ExtraRows& extra);

  // Serves snapshot or history, then events as they happen; ends the sink as WatchRun's contract says. Memory: watchers
  // share the history; one that falls behind it is ended with LIMIT_EXCEEDED. 0 when the sink was ended at once.
  WatcherId Watch(RunEntry& entry, int64_t resume_revision, std::shared_ptr<Sink> sink);
  // The sink has room again, or its client has gone.
  void Pump(WatcherId id);
  // To every watcher that has nothing to read.
  void SendBookmarks();
  void EndWatchers(const absl::Status& status);

  static JournalRecord Row(absl::string_view kind, const v1::Run& run, const google::protobuf::Message& value,
                           absl::string_view key = "");

 private:
  struct Watcher {
    std::string run;
    int64_t cursor = 0;  // last revision written
    std::shared_ptr<Sink> sink;
  };

  absl::Status DoCommit(RunEntry& entry, const Happening& what, const std::function<void(v1::Run&)>& change,
                        const ExtraRows& extra, bool force);
  bool Serve(Watcher& watcher);
  v1::RunEvent MakeEvent(const v1::Run& run, const Happening& what) const;

  Journal& journal_;
  const Clock& clock_;
  Observer& observer_;
  const Options options_;
  std::map<std::string, std::unique_ptr<RunEntry>, std::less<>> runs_;
  std::map<int64_t, RunEntry*> ordered_;
  std::map<WatcherId, Watcher> watchers_;
  WatcherId next_watcher_ = 1;
};

}  // namespace espalier
