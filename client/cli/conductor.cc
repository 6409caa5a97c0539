#include "client/cli/conductor.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/run_view.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {

Conductor::Conductor(std::unique_ptr<Client> client, v1::RunSpec spec, absl::Duration worker_timeout)
    : client_(std::move(client)),
      spec_(std::move(spec)),
      worker_timeout_(worker_timeout),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)),
      thread_(&Conductor::Work, this) {}

Conductor::~Conductor() {
  Cancel();
  thread_.join();
}

std::optional<RunNews> Conductor::Next() {
  uint64_t one;
  while (read(event_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  const MutexLock lock(mutex_);
  if (news_.empty()) return std::nullopt;
  RunNews news = std::move(news_.front());
  news_.pop_front();
  return news;
}

void Conductor::Tell(RunNews news) {
  {
    const MutexLock lock(mutex_);
    news_.push_back(std::move(news));
  }
  const uint64_t one = 1;
  while (write(event_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void Conductor::Work() {
  Tell(Conduct());
}

absl::Status Conductor::WaitForWorker() {
  const absl::Time deadline = absl::Now() + worker_timeout_;
  while (true) {
    ESPALIER_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client_->ListWorkers());
    if (!workers.empty()) return absl::OkStatus();
    if (absl::Now() >= deadline) {
      return MakeError(v1::ERROR_REASON_WORKERS_MISSING,
                       absl::StrCat("no worker has connected to ", client_->address(), " within ",
                                    absl::FormatDuration(worker_timeout_), "; see the workers' logs"),
                       {{"have", "0"}, {"need", absl::StrCat(spec_.world_size())}});
    }
    if (!cancellation_.Sleep(absl::Milliseconds(20))) return absl::CancelledError("interrupted");
  }
}

RunEnded Conductor::Conduct() {
  RunEnded end;
  end.status = WaitForWorker();
  if (!end.status.ok()) return end;
  v1::CreateRunRequest request;
  *request.mutable_spec() = spec_;
  const auto created = client_->CreateRun(std::move(request));
  if (!created.ok()) {
    end.status = created.status();
    return end;
  }
  end.run = *created;
  Tell(RunCreated{*created});
  end.status = client_->WatchRun(
      created->name(), 0,
      [this](const v1::RunEvent& event) {
        Tell(event);
        return true;
      },
      &cancellation_);
  if (!end.status.ok()) return end;
  const auto final = client_->GetRun(created->name());
  if (!final.ok()) {
    end.status = final.status();
    return end;
  }
  end.run = *final;
  end.status = OutcomeOf(*final);
  if (!end.status.ok()) return end;
  auto report = client_->ComputeSparsityReport(final->name(), v1::REPORT_MODE_UNSPECIFIED);
  end.status = report.status();
  if (report.ok()) end.report = *std::move(report);
  return end;
}

}  // namespace espalier::cli
