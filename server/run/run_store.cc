#include "server/run/run_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/names.h"
#include "proto/support/status_macros.h"
#include "proto/support/uuid.h"
#include "server/recipe/planner.h"
#include "server/run/run_states.h"

namespace espalier {
namespace {

std::string RevisionKey(int64_t revision) {
  return absl::StrFormat("%019d", revision);
}

absl::Status DoesNotParse(const JournalRecord& row) {
  return MakeError(v1::ERROR_REASON_JOURNAL_CORRUPT,
                   absl::StrCat("journal: row ", row.kind, " of run ", row.run,
                                " does not parse; move the state "
                                "directory away to start afresh"),
                   {{"what", absl::StrCat(row.kind, " ", row.run, " ", row.key)}});
}

absl::Status RunNotFound(absl::string_view name) {
  return MakeError(v1::ERROR_REASON_RUN_NOT_FOUND,
                   absl::StrCat("there is no run ", name, "; `espalier runs` lists those there are"),
                   {{"run", std::string(name)}});
}

// Leaves the last events that follow one another without a gap.
void KeepUnbroken(std::deque<v1::RunEvent>& events) {
  size_t first = events.empty() ? 0 : events.size() - 1;
  while (first > 0 && events[first - 1].revision() + 1 == events[first].revision()) --first;
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace

RunStore::RunStore(Journal& journal, const Clock& clock, Observer& observer, const Options& options)
    : journal_(journal), clock_(clock), observer_(observer), options_(options) {}

JournalRecord RunStore::Row(absl::string_view kind, const v1::Run& run, const google::protobuf::Message& value,
                            absl::string_view key) {
  return {std::string(kind), run.name(), std::string(key), value.SerializeAsString()};
}

absl::Status RunStore::Load(const std::vector<JournalRecord>& rows) {
  for (const JournalRecord& row : rows) {
    if (row.run.empty()) continue;
    std::unique_ptr<RunEntry>& entry = runs_[row.run];
    if (entry == nullptr) entry = std::make_unique<RunEntry>();
    bool parsed = true;
    if (row.kind == "origin") {
      records::RunOrigin origin;
      parsed = origin.ParseFromString(row.value);
      entry->spec = origin.spec();
      entry->sequence = origin.sequence();
    } else if (row.kind == "plan") {
      parsed = entry->plan.ParseFromString(row.value);
      entry->summary = SummarizePlan(entry->plan);
    } else if (row.kind == "model") {
      parsed = entry->model.ParseFromString(row.value);
    } else if (row.kind == "run") {
      parsed = entry->run.ParseFromString(row.value);
    } else if (row.kind == "event") {
      parsed = entry->events.emplace_back().ParseFromString(row.value);
    } else if (row.kind == "report") {
      parsed = entry->report.emplace().ParseFromString(row.value);
    } else if (row.kind == "save") {
      parsed = entry->saves[row.key].ParseFromString(row.value);
    }
    if (!parsed) return DoesNotParse(row);
  }
  for (const auto& [name, entry] : runs_) {
    KeepUnbroken(entry->events);
    ordered_[entry->sequence] = entry.get();
    observer_.OnRun(entry->run);
  }
  return absl::OkStatus();
}

v1::RunEvent RunStore::MakeEvent(const v1::Run& run, const Happening& what) const {
  v1::RunEvent event;
  event.set_revision(run.revision());
  *event.mutable_time() = ToTimestamp(clock_.Wall());
  event.set_type(what.type);
  event.set_message(what.message);
  *event.mutable_run() = run;
  if (what.progress) *event.mutable_progress() = *what.progress;
  return event;
}

absl::StatusOr<RunEntry*> RunStore::Create(RunEntry entry, const ExtraRows& extra) {
  std::string name;
  do {
    name = RunName(absl::StrCat("r", NewUuid().substr(24)));
  } while (runs_.contains(name));
  entry.sequence = ordered_.empty() ? 1 : ordered_.rbegin()->first + 1;
  v1::Run& run = entry.run;
  run.set_name(name);
  run.set_revision(1);
  run.set_state(v1::Run::STATE_QUEUED);
  *run.mutable_create_time() = ToTimestamp(clock_.Wall());
  entry.events.push_back(MakeEvent(run, {"Created", "planned and queued", {}}));
  records::RunOrigin origin;
  *origin.mutable_spec() = entry.spec;
  origin.set_sequence(entry.sequence);
  std::vector<JournalRecord> rows = {Row("origin", run, origin), Row("plan", run, entry.plan),
                                     Row("model", run, entry.model), Row("run", run, run),
                                     Row("event", run, entry.events.back(), RevisionKey(1))};
  for (JournalRecord& row : extra(run)) rows.push_back(std::move(row));
  ESPALIER_RETURN_IF_ERROR(journal_.Append(rows));
  auto& owned = runs_[name];
  owned = std::make_unique<RunEntry>(std::move(entry));
  ordered_[owned->sequence] = owned.get();
  LogInfo("run_state", {{"run", name}, {"state", "QUEUED"}});
  observer_.OnRun(owned->run);
  return owned.get();
}

RunEntry* RunStore::Find(absl::string_view name) {
  const auto it = runs_.find(std::string(name));
  return it == runs_.end() ? nullptr : it->second.get();
}

absl::StatusOr<RunEntry*> RunStore::Get(absl::string_view name) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string id, ParseRunName(name));
  RunEntry* entry = Find(RunName(id));
  if (entry == nullptr) return RunNotFound(RunName(id));
  return entry;
}

absl::Status RunStore::Commit(RunEntry& entry, const Happening& what, const std::function<void(v1::Run&)>& change,
                              const ExtraRows& extra) {
  return DoCommit(entry, what, change, extra, /*force=*/false);
}

void RunStore::ForceCommit(RunEntry& entry, const Happening& what, const std::function<void(v1::Run&)>& change,
                           const ExtraRows& extra) {
  const absl::Status status = DoCommit(entry, what, change, extra, /*force=*/true);
  if (!status.ok()) {
    LogError("journal_write", {{"run", entry.run.name()}, {"error", std::string(status.message())}});
  }
}

absl::Status RunStore::DoCommit(RunEntry& entry, const Happening& what, const std::function<void(v1::Run&)>& change,
                                const ExtraRows& extra, bool force) {
  v1::Run after = entry.run;
  if (change) change(after);
  after.set_revision(entry.run.revision() + 1);
  v1::RunEvent event = MakeEvent(after, what);
  std::vector<JournalRecord> rows = {Row("run", after, after),
                                     Row("event", after, event, RevisionKey(after.revision()))};
  const bool full = entry.events.size() >= options_.max_events;
  if (full) {
    rows.push_back({"event", after.name(), RevisionKey(entry.events.front().revision()), "", /*erase=*/true});
  }
  if (extra) {
    for (JournalRecord& row : extra(after)) rows.push_back(std::move(row));
  }
  const absl::Status written = journal_.Append(rows);
  if (!written.ok() && !force) return written;
  if (entry.run.state() != after.state()) {
    LogInfo("run_state",
            {{"run", after.name()}, {"state", StateName(after.state())}, {"why", after.error().message()}});
  }
  observer_.OnRunChanged(entry.run, after, what.type);
  entry.run = std::move(after);
  if (full) entry.events.pop_front();
  entry.events.push_back(std::move(event));
  std::vector<WatcherId> ids;
  for (const auto& [id, watcher] : watchers_) {
    if (watcher.run == entry.run.name()) ids.push_back(id);
  }
  for (const WatcherId id : ids) Pump(id);
  return written;
}

void RunStore::Tell(RunEntry& entry, const Happening& what, const std::function<void(v1::Run&)>& change) {
  change(entry.run);
  observer_.OnRunChanged(entry.run, entry.run, what.type);
  for (auto& [id, watcher] : watchers_) {
    if (watcher.run == entry.run.name() && watcher.cursor == entry.run.revision() && watcher.sink->Room() > 0) {
      watcher.sink->Write(MakeEvent(entry.run, what));
    }
  }
}

absl::Status RunStore::Delete(RunEntry& entry, const ExtraRows& extra) {
  const std::string name = entry.run.name();
  std::vector<JournalRecord> rows = {{"", name, "", "", /*erase=*/true}};
  if (extra) {
    for (JournalRecord& row : extra(entry.run)) rows.push_back(std::move(row));
  }
  ESPALIER_RETURN_IF_ERROR(journal_.Append(rows));
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    if (it->second.run == name) {
      it->second.sink->Finish(RunNotFound(name));
      it = watchers_.erase(it);
    } else {
      ++it;
    }
  }
  observer_.OnRunForgotten(entry.run);
  ordered_.erase(entry.sequence);
  runs_.erase(name);
  return absl::OkStatus();
}

RunStore::WatcherId RunStore::Watch(RunEntry& entry, int64_t resume_revision, std::shared_ptr<Sink> sink) {
  const int64_t revision = entry.run.revision();
  if (watchers_.size() >= options_.max_watchers) {
    sink->Finish(MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                           absl::StrCat("there are ", options_.max_watchers, " watchers already; try again later"),
                           {{"limit", absl::StrCat(options_.max_watchers)}, {"value", "watchers"}}));
    return 0;
  }
  if (resume_revision < 0 || resume_revision > revision) {
    sink->Finish(MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                           absl::StrCat("resume_revision ", resume_revision, " is not of ", entry.run.name(),
                                        ", which is at ", revision, "; 0 begins with a snapshot"),
                           {{"field", "resume_revision"}}));
    return 0;
  }
  Watcher watcher{entry.run.name(), resume_revision, std::move(sink)};
  if (resume_revision == 0) {
    watcher.cursor = revision;
    watcher.sink->Write(MakeEvent(entry.run, {"Snapshot", entry.run.state_reason(), {}}));
  } else if (!entry.events.empty() && entry.events.front().revision() > resume_revision + 1) {
    const int64_t oldest = entry.events.front().revision();
    watcher.sink->Finish(
        MakeError(v1::ERROR_REASON_HISTORY_COMPACTED,
                  absl::StrCat("events after revision ", resume_revision, " of ", entry.run.name(),
                               " are no longer kept, the oldest is ", oldest, "; watch from 0 for a snapshot"),
                  {{"oldest", absl::StrCat(oldest)}}));
    return 0;
  }
  const WatcherId id = next_watcher_++;
  watchers_[id] = std::move(watcher);
  Pump(id);
  return id;
}

void RunStore::Pump(WatcherId id) {
  const auto it = watchers_.find(id);
  if (it != watchers_.end() && !Serve(it->second)) watchers_.erase(it);
}

// False when the watcher has ended.
bool RunStore::Serve(Watcher& watcher) {
  if (watcher.sink->Closed()) return false;
  const RunEntry& entry = *Find(watcher.run);
  const int64_t oldest = entry.events.empty() ? entry.run.revision() + 1 : entry.events.front().revision();
  if (watcher.cursor + 1 < oldest) {
    watcher.sink->Finish(MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                                   absl::StrCat("this watcher of ", watcher.run, " reads too slowly: more than ",
                                                options_.max_events, " events behind; watch again from a snapshot"),
                                   {{"limit", absl::StrCat(options_.max_events)},
                                    {"value", absl::StrCat(entry.run.revision() - watcher.cursor)}}));
    return false;
  }
  while (watcher.cursor < entry.run.revision() && watcher.sink->Room() > 0) {
    ++watcher.cursor;
    watcher.sink->Write(entry.events[static_cast<size_t>(watcher.cursor - oldest)]);
  }
  if (watcher.cursor == entry.run.revision() && IsTerminal(entry.run.state())) {
    watcher.sink->Finish(absl::OkStatus());
    return false;
  }
  return true;
}

void RunStore::SendBookmarks() {
  for (auto& [id, watcher] : watchers_) {
    const RunEntry& entry = *Find(watcher.run);
    if (watcher.cursor < entry.run.revision() || watcher.sink->Room() == 0) continue;
    v1::RunEvent event = MakeEvent(entry.run, {"Bookmark", "", {}});
    event.clear_run();
    watcher.sink->Write(std::move(event));
  }
}

void RunStore::EndWatchers(const absl::Status& status) {
  for (auto& [id, watcher] : watchers_) watcher.sink->Finish(status);
  watchers_.clear();
}

}  // namespace espalier
