#include "worker/session/executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"

namespace espalier {
namespace {

google::protobuf::Duration ToProtoDuration(absl::Duration duration) {
  google::protobuf::Duration out;
  out.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  out.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
  return out;
}

}  // namespace

Executor::Executor(CommandQueue& queue, GenerationGate& gate, Holding* holding, const Clock& clock,
                   ExecutorOptions options)
    : queue_(queue), gate_(gate), holding_(holding), clock_(clock), options_(std::move(options)), thread_([this] {
        Loop();
      }) {}

void Executor::Finish() {
  queue_.Close();
  if (thread_.joinable()) thread_.join();
}

void Executor::SetCoordinator(const std::string& instance_id) {
  MutexLock lock(mutex_);
  results_.SetCoordinator(instance_id);
}

void Executor::Loop() {
  while (const std::optional<QueuedCommand> queued = queue_.Pop()) {
    const int64_t id = queued->command.command_id();
    std::shared_ptr<const CommandResult> result;
    bool forgotten = false;
    {
      MutexLock lock(mutex_);
      result = results_.Find(id);
      forgotten = id != 0 && results_.Forgotten(id);
    }
    if (result == nullptr && !forgotten) {
      result = Execute(*queued);
      if (id == 0) continue;
      MutexLock lock(mutex_);
      results_.Put(id, result);
    }
    if (result == nullptr) {
      auto refusal = std::make_shared<CommandResult>();
      refusal->ack.set_command_id(id);
      *refusal->ack.mutable_status() =
          ToProto(MakeError(v1::ERROR_REASON_INVARIANT,
                            absl::StrCat("command ", id, " was executed long ago and its result is no longer kept"),
                            {{"what", "resend"}}));
      result = std::move(refusal);
    }
    Answer(*result);
  }
}

std::shared_ptr<const CommandResult> Executor::Execute(const QueuedCommand& queued) {
  const v1::Command& command = queued.command;
  auto result = std::make_shared<CommandResult>();
  const absl::Duration start = clock_.Monotonic();
  if (holding_ != nullptr) holding_->Begin(command);
  absl::Status status = gate_.Admit(command);
  if (status.ok()) {
    const absl::Duration given =
        absl::Seconds(command.deadline().seconds()) + absl::Nanoseconds(command.deadline().nanos());
    const CommandContext context{command,
                                 queued.received + (given > absl::ZeroDuration() ? given : options_.default_deadline),
                                 clock_, MakeProgress(command)};
    status = options_.execute(context, *result);
  }
  if (!status.ok()) {
    // A failed command has no result: nothing of it may be taken for one.
    *result = {};
    LogWarn("command_failed", {{"command", absl::StrCat(command.command_id())},
                               {"operation", OperationOf(command)},
                               {"run", command.run()},
                               {"reason", ReasonName(status)},
                               {"message", std::string(status.message())}});
  }
  for (v1::ResultPage& page : result->pages) {
    page.set_command_id(command.command_id());
    page.set_generation(command.generation());
  }
  result->ack.set_command_id(command.command_id());
  result->ack.set_generation(command.generation());
  *result->ack.mutable_status() = ToProto(status);
  const absl::Duration elapsed = clock_.Monotonic() - start;
  *result->ack.mutable_elapsed() = ToProtoDuration(elapsed);
  options_.executed(command, result->ack, elapsed);
  if (holding_ != nullptr) holding_->End();
  return result;
}

void Executor::Answer(const CommandResult& result) {
  for (const v1::ResultPage& page : result.pages) {
    v1::WorkerMessage message;
    *message.mutable_page() = page;
    options_.send(std::move(message));
  }
  v1::WorkerMessage message;
  *message.mutable_ack() = result.ack;
  options_.send(std::move(message));
}

ProgressFn Executor::MakeProgress(const v1::Command& command) {
  if (command.command_id() == 0) return [](absl::string_view, int64_t, int64_t, absl::string_view) {};
  return [this, id = command.command_id(), last = -absl::InfiniteDuration()](
             absl::string_view phase, int64_t done, int64_t total, absl::string_view unit) mutable {
    const absl::Duration now = clock_.Monotonic();
    if (now - last < options_.progress_interval) return;
    last = now;
    v1::WorkerMessage message;
    v1::CommandProgress& progress = *message.mutable_progress();
    progress.set_command_id(id);
    progress.set_phase(std::string(phase));
    progress.set_done(done);
    progress.set_total(total);
    progress.set_unit(std::string(unit));
    options_.send(std::move(message));
  };
}

}  // namespace espalier
