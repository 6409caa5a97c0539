// What a RUNNING run is asked for: reports, parameters, masks.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/support/checks.h"
#include "proto/support/errors.h"
#include "proto/support/summary.h"
#include "server/run/report_pages.h"
#include "server/run/run_driver.h"
#include "server/run/run_states.h"

namespace espalier {

absl::Status RunDriver::MustRun(absl::string_view what) const {
  if (run().state() == v1::Run::STATE_RUNNING) return absl::OkStatus();
  return IllegalFromState(run(), what, "that needs the live model of a RUNNING run (keep one with hold)");
}

void RunDriver::Enqueue(Demand demand) {
  demands_.push_back(std::move(demand));
  if (idle_) Next();
}

void RunDriver::EndDemand() {
  serving_.reset();
  Next();
}

// --- reports

void RunDriver::ComputeReport(v1::ReportMode mode, ReportDone done, std::function<void(const absl::Status&)> soft) {
  v1::Command command = NewCommand();
  command.mutable_report_sparsity()->set_mode(mode);
  const absl::Duration start = around_.loop.Now();
  const auto finish = [this, mode, start, done = std::move(done)](Answers answers) {
    records::ReportRecord report;
    int64_t moved = 0;
    for (size_t r = 0; r < answers.size(); ++r) {
      const v1::ReportSparsityResult& result = answers[r].ack.report_sparsity();
      moved += result.bytes_sent();
      if (result.mask_version() == run().mask_version()) continue;
      return Fail(MakeError(v1::ERROR_REASON_STATE_DIVERGED,
                            absl::StrCat("rank ", r, " (", workers_[r], ") reported mask version ",
                                         result.mask_version(), " instead of ", run().mask_version()),
                            {{"rank", absl::StrCat(r)},
                             {"want", absl::StrCat(run().mask_version())},
                             {"got", absl::StrCat(result.mask_version())}}));
    }
    std::vector<v1::ParameterSparsity>& rows = answers[0].rows;
    if (rows.size() != parameters_.size()) {
      return Fail(MakeError(v1::ERROR_REASON_INVARIANT,
                            absl::StrCat("the report of rank 0 (", workers_[0], ") has ", rows.size(),
                                         " parameters, the model ", parameters_.size()),
                            {{"what", "rows"}, {"where", "ReportSparsity"}}));
    }
    for (v1::ParameterSparsity& row : rows) {
      const auto planned = planned_.find(row.name());
      row.set_planned(planned == planned_.end() ? -1 : planned->second);
    }
    if (ChecksOn()) {
      const absl::Status effective = CheckPlanned(rows);
      if (!effective.ok()) return Fail(effective);
    }
    *report.mutable_summary() = Summarize(rows, run().mask_version());
    for (v1::ParameterSparsity& row : rows) *report.add_parameters() = std::move(row);
    v1::Provenance& provenance = *report.mutable_provenance();
    provenance.set_run(run().name());
    provenance.set_generation(run().generation());
    provenance.set_mode(mode);
    provenance.set_world_size(world_size());
    provenance.set_elapsed_seconds(absl::ToDoubleSeconds(around_.loop.Now() - start));
    provenance.set_bytes_moved(moved);
    provenance.set_path(run().model_path());
    provenance.set_time(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", Wall(), absl::UTCTimeZone()));
    provenance.set_version(ESPALIER_VERSION);
    if (mode == v1::REPORT_MODE_SHARD_COUNTS) report_ = report;
    done(std::move(report));
  };
  // A gather moves the model once.
  CallAll(command, DataDeadline(ModelBytes() * 2), finish, std::move(soft));
}

absl::Status RunDriver::Report(v1::ReportMode mode, std::shared_ptr<ReportSink> sink) {
  const absl::Status status = MustRun("compute a report");
  if (!status.ok()) return status;
  if (mode == v1::REPORT_MODE_UNSPECIFIED) mode = v1::REPORT_MODE_SHARD_COUNTS;
  Demand demand;
  demand.start = [this, mode, sink] {
    if (sink->Closed()) return EndDemand();
    ComputeReport(
        mode,
        [this, sink](const records::ReportRecord& report) {
          WriteReport(report, *sink);
          EndDemand();
        },
        [this, sink](const absl::Status& status) {
          sink->Finish(status);
          EndDemand();
        });
  };
  demand.abort = [sink](const absl::Status& why) { sink->Finish(why); };
  Enqueue(std::move(demand));
  return absl::OkStatus();
}

// --- parameters and masks

absl::Status RunDriver::Gather(const v1::GatherParameter& op, std::shared_ptr<ChunkSink> sink) {
  const absl::Status status = MustRun(op.mask() ? "read a mask" : "read a parameter");
  if (!status.ok()) return status;
  Demand demand;
  demand.start = [this, op, sink] {
    if (sink->Closed()) return EndDemand();
    StartGather(op, sink);
  };
  demand.abort = [sink](const absl::Status& why) { sink->Finish(why); };
  Enqueue(std::move(demand));
  return absl::OkStatus();
}

void RunDriver::StartGather(const v1::GatherParameter& op, std::shared_ptr<ChunkSink> sink) {
  upload_end_.reset();
  gather_end_.reset();
  relay_ = std::make_shared<UploadRelay>(
      run().generation(), run().mask_version(), std::move(sink),
      [this, &loop = around_.loop, alive = std::weak_ptr<bool>(alive_)](const absl::Status& status) {
        loop.Post([this, alive, status] {
          const auto held = alive.lock();
          if (held == nullptr || relay_ == nullptr) return;
          upload_end_ = status;
          EndGather();
        });
      });
  v1::Command command = NewCommand();
  *command.mutable_gather_parameter() = op;
  const auto ended = [this](const absl::Status& status) {
    gather_end_ = status;
    EndGather();
  };
  CallAll(
      command, DataDeadline(ModelBytes()) + 2 * around_.timeouts.read_stall, [ended](const Answers&) { ended({}); },
      ended);
  if (call_ == nullptr || relay_ == nullptr) return;
  upload_ = {workers_[0], call_->command_id(0)};
  around_.expect_upload(upload_.first, upload_.second, relay_);
  WatchReader(-1);
}

// Neither a client that stops reading nor an upload that never comes may hold up the run.
void RunDriver::WatchReader(int64_t passed) {
  read_timer_ = around_.loop.After(around_.timeouts.read_stall, [this, passed] {
    read_timer_ = 0;
    if (relay_ == nullptr) return;
    const int64_t now = relay_->passed();
    const bool working = now == 0 && !gather_end_;  // the ranks are still at it
    if (now != passed || working) return WatchReader(now);
    const std::string limit = absl::FormatDuration(around_.timeouts.read_stall);
    const absl::Status late = MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                                        absl::StrCat("nothing of the parameter was taken or came for ", limit),
                                        {{"limit", limit}, {"value", "reading"}});
    relay_->Finish(late);
    if (!gather_end_) return;  // the worker is told that nobody waits, and answers
    upload_end_ = late;
    EndGather();
  });
}

void RunDriver::EndGather() {
  // An upload that never came, or broke, is over when its command is.
  const bool failed = gather_end_ && !gather_end_->ok();
  if (!gather_end_ || (!upload_end_ && !failed)) return;
  const std::shared_ptr<UploadRelay> relay = std::exchange(relay_, nullptr);
  around_.expect_upload(upload_.first, upload_.second, nullptr);
  around_.loop.Cancel(std::exchange(read_timer_, 0));
  relay->Finish(failed ? *gather_end_ : *upload_end_);
  EndDemand();
}

}  // namespace espalier
