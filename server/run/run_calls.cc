// Commands to the group.

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "server/run/run_driver.h"

namespace espalier {

v1::Command RunDriver::NewCommand() const {
  v1::Command command;
  command.set_run(run().name());
  command.set_generation(run().generation());
  return command;
}

void RunDriver::CallAll(const v1::Command& command, absl::Duration deadline, std::function<void(Answers)> done,
                        std::function<void(const absl::Status&)> soft) {
  Call(std::vector<std::optional<v1::Command>>(workers_.size(), command), deadline, std::move(done), std::move(soft));
}

void RunDriver::Call(const std::vector<std::optional<v1::Command>>& commands, absl::Duration deadline,
                     std::function<void(Answers)> done, std::function<void(const absl::Status&)> soft) {
  call_done_ = std::move(done);
  call_soft_ = std::move(soft);
  errors_.clear();
  last_phase_.clear();
  GroupCall::Callbacks callbacks;
  callbacks.error = [this](int rank, const absl::Status& status) { OnRankError(rank, status); };
  callbacks.ended = [this](std::vector<std::optional<RankAnswer>> answers) { OnEnded(std::move(answers)); };
  callbacks.expired = [this](const std::vector<int>& missing) { OnExpired(missing); };
  callbacks.progress = [this](const v1::CommandProgress& sum) { OnProgress(sum); };
  call_ = std::make_unique<GroupCall>(around_.loop, around_.registry, workers_, commands, deadline,
                                      around_.timeouts.patience, std::move(callbacks));
  call_began_ = around_.loop.Now();
  call_->Start();
}

void RunDriver::Observe(const std::vector<std::optional<RankAnswer>>& answers, const absl::Status& status) {
  std::vector<const v1::Ack*> acks;
  for (const std::optional<RankAnswer>& answer : answers) {
    if (answer) acks.push_back(&answer->ack);
  }
  around_.observer.OnCommand(call_->operation(), around_.loop.Now() - call_began_, acks, status);
}

void RunDriver::OnProgress(const v1::CommandProgress& sum) {
  const absl::Duration now = around_.loop.Now();
  if (sum.phase() == last_phase_ && now - last_progress_ < around_.timeouts.progress) return;
  last_phase_ = sum.phase();
  last_progress_ = now;
  v1::RunProgress progress;
  progress.set_phase(sum.phase());
  progress.set_done(sum.done());
  progress.set_total(sum.total());
  progress.set_unit(sum.unit());
  const std::string message = absl::StrCat(sum.phase(), " ", sum.done(), " of ", sum.total(), " ", sum.unit());
  around_.store.Tell(entry_, {"Progress", message, progress}, [&](v1::Run& run) {
    if (!save_ || save_->operation.empty() || sum.phase() != "save") return;
    for (v1::Operation& operation : *run.mutable_operations()) {
      if (operation.name() != save_->operation || operation.state() != v1::Operation::STATE_RUNNING) continue;
      operation.set_bytes_done(sum.done());
      operation.set_bytes_total(sum.total());
    }
  });
}

}  // namespace espalier
