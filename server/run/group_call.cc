#include "server/run/group_call.h"

#include <algorithm>
#include <utility>

#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"
#include "server/run/command_parts.h"

namespace espalier {
namespace {

// Puts a page's slice at its place; pages may come in any order and twice.
void Place(std::vector<int64_t>& into, int64_t first, const google::protobuf::RepeatedField<int64_t>& values) {
  constexpr int64_t kMost = int64_t{1} << 24;  // parameters of a model; bounds what a broken worker can make us hold
  if (values.empty() || first < 0 || first + values.size() > kMost) return;
  const size_t begin = static_cast<size_t>(first);
  into.resize(std::max(into.size(), begin + static_cast<size_t>(values.size())), 0);
  std::copy(values.begin(), values.end(), into.begin() + static_cast<std::ptrdiff_t>(begin));
}

}  // namespace

std::string OperationOf(const v1::Command& command) {
  const auto* oneof = v1::Command::descriptor()->FindOneofByName("op");
  const auto* field = v1::Command::GetReflection()->GetOneofFieldDescriptor(command, oneof);
  return field == nullptr ? "" : field->message_type()->name();
}

GroupCall::GroupCall(EventLoop& loop, WorkerRegistry& registry, std::vector<std::string> workers,
                     const std::vector<std::optional<v1::Command>>& commands, absl::Duration deadline,
                     absl::Duration patience, Callbacks callbacks)
    : loop_(loop),
      registry_(registry),
      workers_(std::move(workers)),
      wait_(deadline + patience),
      callbacks_(std::move(callbacks)),
      ranks_(workers_.size()) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!commands[r]) continue;
    v1::Command command = *commands[r];
    operation_ = OperationOf(command);
    *command.mutable_deadline() =
        google::protobuf::util::TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(deadline));
    ranks_[r].parts = SplitCommand(command);
    ranks_[r].open = true;
  }
}

GroupCall::~GroupCall() {
  *alive_ = false;
  loop_.Cancel(timer_);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].open && ranks_[r].command_id != 0) registry_.Forget(workers_[r], ranks_[r].command_id);
  }
}

void GroupCall::Start() {
  const std::shared_ptr<bool> alive = alive_;
  timer_ = loop_.After(wait_, [this] {
    timer_ = 0;
    const auto expired = callbacks_.expired;  // a copy: it may destroy this
    expired(Owing());
  });
  for (size_t r = 0; *alive && r < ranks_.size(); ++r) {
    if (!ranks_[r].open) continue;
    const int rank = static_cast<int>(r);
    CommandHandler handler;
    handler.page = [this, rank](const v1::ResultPage& page) { OnPage(rank, page); };
    handler.progress = [this, rank](const v1::CommandProgress& progress) { OnProgress(rank, progress); };
    handler.done = [this, rank](absl::StatusOr<v1::Ack> ack) { OnDone(rank, std::move(ack)); };
    ranks_[r].command_id = registry_.SendCommand(workers_[r], std::move(ranks_[r].parts), std::move(handler));
    if (ranks_[r].command_id == 0) {
      OnDone(rank,
             MakeError(v1::ERROR_REASON_WORKER_LOST, "worker " + workers_[r] + " is lost", {{"worker", workers_[r]}}));
    }
  }
}

std::vector<int> GroupCall::Owing() const {
  std::vector<int> owing;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].open) owing.push_back(static_cast<int>(r));
  }
  return owing;
}

void GroupCall::OnPage(int rank, const v1::ResultPage& page) {
  Rank& state = ranks_[static_cast<size_t>(rank)];
  if (page.has_counts()) {
    const v1::CountPage& counts = page.counts();
    Place(state.answer.counts.counts, counts.first(), counts.counts());
    Place(state.answer.counts.zeros, counts.first(), counts.zeros());
    Place(state.answer.counts.violations, counts.first(), counts.violations());
  } else if (page.has_report()) {
    for (const v1::ParameterSparsity& row : page.report().parameters()) state.rows[row.name()] = row;
  } else if (page.has_checksums()) {
    state.checksums[page.checksums().first()] = page.checksums();
  }
}

void GroupCall::OnProgress(int rank, const v1::CommandProgress& progress) {
  ranks_[static_cast<size_t>(rank)].progress = progress;
  if (!callbacks_.progress) return;
  // Bytes add up; what ranks that have not told yet will add is taken to be as much. Every rank works on its part of each
  // parameter, so there the slowest one tells how far all are.
  v1::CommandProgress sum = progress;
  const bool bytes = progress.unit() == "bytes";
  const auto ranks = static_cast<int64_t>(ranks_.size());
  int64_t telling = 0, done = 0, total = 0;
  for (const Rank& each : ranks_) {
    if (each.progress.phase() != progress.phase()) continue;
    done = bytes ? done + each.progress.done()
                 : std::min(telling == 0 ? each.progress.done() : done, each.progress.done());
    total = bytes ? total + each.progress.total() : std::max(total, each.progress.total());
    ++telling;
  }
  sum.set_done(done);
  sum.set_total(bytes ? total / telling * ranks + total % telling : total);
  callbacks_.progress(sum);
}

void GroupCall::OnDone(int rank, absl::StatusOr<v1::Ack> ack) {
  const std::shared_ptr<bool> alive = alive_;
  Rank& state = ranks_[static_cast<size_t>(rank)];
  state.open = false;
  if (ack.ok()) {
    state.answer.ack = *std::move(ack);
  } else {
    state.failed = true;
    const auto error = callbacks_.error;
    error(rank, ack.status());
    if (!*alive) return;
  }
  EndIfAllEnded();
}

void GroupCall::EndIfAllEnded() {
  if (timer_ == 0 || !Owing().empty()) return;
  loop_.Cancel(std::exchange(timer_, 0));
  std::vector<std::optional<RankAnswer>> answers(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].failed || ranks_[r].command_id == 0) continue;
    for (auto& [name, row] : ranks_[r].rows) ranks_[r].answer.rows.push_back(std::move(row));
    for (auto& [first, page] : ranks_[r].checksums) {
      for (v1::RangeChecksum& checksum : *page.mutable_checksums()) {
        ranks_[r].answer.checksums.push_back(std::move(checksum));
      }
    }
    answers[r] = std::move(ranks_[r].answer);
  }
  // A copy: the callback may destroy this.
  const auto ended = callbacks_.ended;
  ended(std::move(answers));
}

}  // namespace espalier
