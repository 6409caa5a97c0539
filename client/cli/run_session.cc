#include "client/cli/run_session.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/text.h"
#include "proto/support/broken_pipe.h"
#include "proto/support/errors.h"

namespace espalier::cli {
namespace {

// LibTorch takes its time from a cold disk.
constexpr absl::Duration kWorkerTimeout = absl::Seconds(60);
// A lost worker is noticed by its lease, and the run then fails; beyond that the verdict is ours.
constexpr absl::Duration kVerdict = absl::Seconds(30);
constexpr absl::Duration kCancel = absl::Seconds(10);
constexpr absl::Duration kGrace = absl::Seconds(5);
constexpr int kTickMs = 100;

int TakeSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // A closed terminal or pipe must not keep this process from ending its children in order.
  IgnoreBrokenPipes();
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

ClientOptions OptionsFor(const std::string& address) {
  ClientOptions options;
  options.address = address;
  options.call_timeout = absl::Seconds(90);
  // The coordinator is a child on this machine: if it is gone, its pidfd says so.
  options.resume_timeout = absl::Seconds(2);
  return options;
}

}  // namespace

RunSession::RunSession(RunSessionOptions options, StateDir& state, Progress& progress)
    : options_(std::move(options)),
      state_(state),
      progress_(progress),
      view_(progress, /*show_queue=*/false),
      signals_(TakeSignals()) {}

RunSession::~RunSession() {
  // Children first: a conductor that waits for one of them then ends.
  embedded_.reset();
  conductor_.reset();
  if (canceller_.joinable()) canceller_.join();
}

void RunSession::Fail(absl::Status status) {
  if (result_.status.ok()) result_.status = std::move(status);
  done_ = true;
}

RunSessionResult RunSession::Run() {
  auto started = Embedded::Start(options_.embedded, state_, signals_.get());
  if (!started.ok()) {
    Fail(started.status());
    if (started.status().code() == absl::StatusCode::kCancelled) OnSignal();
  } else {
    embedded_ = *std::move(started);
    if (options_.announce) progress_.Line(absl::StrCat("coordinator on ", embedded_->address()));
    auto client = Client::Create(OptionsFor(embedded_->address()));
    if (client.ok()) {
      conductor_ = std::make_unique<Conductor>(*std::move(client), options_.spec, kWorkerTimeout);
      Supervise();
    } else {
      Fail(client.status());
    }
  }
  progress_.End(result_.status.ok());
  // Its connection is idle, and gRPC looks at an idle one every five seconds: the coordinator would wait for that.
  if (conducted_) conductor_.reset();
  if (embedded_ != nullptr) embedded_->Stop(stop_at_once_ ? absl::ZeroDuration() : kGrace);

  for (ChildProcess* child : ended_) progress_.Line(DescribeEnd(*child));
  if (interrupted_ != 0 && !result_.status.ok()) {
    result_.exit_code = 128 + interrupted_;
    const bool made = result_.run.has_value();
    const bool cancelled = !made || result_.run->state() == v1::Run::STATE_CANCELLED;
    result_.status = MakeError(v1::ERROR_REASON_CANCELLED,
                               cancelled ? "interrupted; nothing was saved"
                                         : "interrupted; the run was ended before it had confirmed the cancel",
                               {{"run", made ? result_.run->name() : ""}});
  } else if (!result_.status.ok() && (result_.run || !ended_.empty())) {
    // A refused recipe or model leaves nothing that is worth keeping.
    state_.Keep();
    progress_.Line(absl::StrCat("journal and logs are kept in ", state_.path()));
  }
  return std::move(result_);
}

void RunSession::Supervise() {
  while (!done_) {
    std::vector<pollfd> fds = {
        {signals_.get(), POLLIN, 0}, {conductor_->fd(), POLLIN, 0}, {embedded_->coordinator().pidfd(), POLLIN, 0}};
    for (const auto& worker : embedded_->workers()) {
      if (!worker->Poll()) fds.push_back({worker->pidfd(), POLLIN, 0});
    }
    poll(fds.data(), fds.size(), kTickMs);
    if (fds[0].revents != 0) OnSignal();
    if (!done_ && fds[1].revents != 0) OnNews();
    if (!done_) OnChildren();
    if (!done_ && absl::Now() >= verdict_) {
      Fail(ended_.empty() ? MakeError(v1::ERROR_REASON_UNREACHABLE, "the coordinator did not answer the cancel in time",
                                      {{"address", embedded_->address()}})
                          : MakeError(v1::ERROR_REASON_WORKER_LOST,
                                      absl::StrCat(ended_.front()->name(), " ended and the run did not; see the logs"),
                                      {{"worker", ended_.front()->name()}}));
    }
    if (!done_ && absl::Now() >= begin_by_ && Queued()) {
      Fail(MakeError(v1::ERROR_REASON_WORKERS_MISSING,
                     absl::StrCat("not all of ", Count(options_.embedded.workers, "worker"), " have connected within ",
                                  absl::FormatDuration(kWorkerTimeout), "; see their logs in ", state_.path()),
                     {{"need", absl::StrCat(options_.embedded.workers)}}));
    }
    progress_.Tick();
  }
}

void RunSession::OnSignal() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (interrupted_ != 0) {
      stop_at_once_ = true;
      done_ = true;
      if (result_.status.ok()) result_.status = absl::CancelledError("interrupted");
      continue;
    }
    interrupted_ = static_cast<int>(info.ssi_signo);
    progress_.End(false);
    if (conductor_ == nullptr) continue;
    if (!result_.run) {
      // Nothing was made yet, or its making is on the way and will end with the coordinator.
      Fail(absl::CancelledError("interrupted"));
      continue;
    }
    progress_.Line(absl::StrCat("cancelling ", result_.run->name(), " (again to end at once)"));
    verdict_ = absl::Now() + kCancel;
    canceller_ = std::thread(&RunSession::CancelRun, this, result_.run->name());
  }
}

void RunSession::CancelRun(const std::string& name) {
  ClientOptions options = OptionsFor(embedded_->address());
  options.call_timeout = kCancel;
  const auto client = Client::Create(options);
  // Where it fails the verdict's time passes, and the children are ended.
  if (client.ok()) (*client)->CancelRun(name, "interrupted at the terminal").status().IgnoreError();
}

void RunSession::OnNews() {
  std::optional<RunNews> news = conductor_->Next();
  if (!news) return;
  if (auto* created = std::get_if<RunCreated>(&*news)) {
    result_.run = created->run;
    begin_by_ = absl::Now() + kWorkerTimeout;
    const v1::PlanSummary& plan = created->run.plan();
    progress_.Line(absl::StrCat(created->run.name(), ": ", Thousands(plan.pruned_parameters()), " of ",
                                Count(plan.model_parameters(), "parameter"), ", ",
                                Count(created->run.updates_total(), "update")));
    for (const std::string& warning : plan.warnings()) progress_.Line(absl::StrCat("note: ", warning));
  } else if (auto* event = std::get_if<v1::RunEvent>(&*news)) {
    view_.OnEvent(*event);
  } else if (auto* ended = std::get_if<RunEnded>(&*news)) {
    result_.status = std::move(ended->status);
    result_.report = std::move(ended->report);
    if (ended->run) result_.run = std::move(ended->run);
    conducted_ = true;
    done_ = true;
  }
}

bool RunSession::Queued() const {
  if (!result_.run) return false;
  return (view_.run().name().empty() ? *result_.run : view_.run()).state() == v1::Run::STATE_QUEUED;
}

void RunSession::OnChildren() {
  if (embedded_->coordinator().Poll()) {
    Fail(MakeError(v1::ERROR_REASON_UNREACHABLE, DescribeEnd(embedded_->coordinator()),
                   {{"address", embedded_->address()}}));
    return;
  }
  for (const auto& worker : embedded_->workers()) {
    if (!worker->Poll() || std::find(ended_.begin(), ended_.end(), worker.get()) != ended_.end()) continue;
    ended_.push_back(worker.get());
    // A run in the queue waits for a worker that will not come.
    if (result_.run && !Queued()) {
      progress_.Line(absl::StrCat(worker->name(), " (pid ", worker->pid(), ") ", worker->Poll()->Describe()));
      verdict_ = std::min(verdict_, absl::Now() + kVerdict);
    } else {
      Fail(MakeError(v1::ERROR_REASON_WORKER_LOST,
                     absl::StrCat(worker->name(), " (pid ", worker->pid(), ") ", worker->Poll()->Describe(),
                                  " before the run began; see its log"),
                     {{"worker", worker->name()}}));
    }
  }
}

}  // namespace espalier::cli
