// B9: the coordinator pushes one command to N sessions and has all acks, against the same fan-out over a bare gRPC stream:
// the smallest server that writes a message to N streams and waits for one from each. The clients are another process.
//   b9_fanout [N...]     default: 1 8 64 512

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/measure.h"
#include "espalier/v1/worker_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/metrics/metrics.h"
#include "proto/support/channel.h"
#include "proto/support/clock.h"
#include "proto/support/log.h"
#include "proto/support/mutex.h"
#include "proto/support/open_files.h"
#include "proto/support/uuid.h"
#include "server/api/grpc_server.h"
#include "server/run/coordinator.h"
#include "server/run/event_loop.h"
#include "server/store/journal.h"

namespace espalier::bench {
namespace {

constexpr int kTurns = 300;
constexpr double kTarget = 1 / 1.5;
constexpr int64_t kMaxRssBytes = 200'000'000;

template <class T>
T Check(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "b9: %s\n", value.status().ToString().c_str());
  std::exit(1);
}

// Counts answers of one fan-out.
class Answers {
 public:
  void Expect(int count) {
    MutexLock lock(mutex_);
    missing_ = count;
  }
  void One() {
    MutexLock lock(mutex_);
    if (--missing_ == 0) all_.SignalAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (missing_ > 0) all_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar all_;
  int missing_ ABSL_GUARDED_BY(mutex_) = 0;
};

// --- the clients: one stream each, on connections of their own; says Hello, and answers each command with its ack and
// each empty message with an empty one.
class Client final : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  Client(const std::string& address, int index) : stub_(v1::WorkerService::NewStub(DialCoordinator(address))) {
    v1::Hello& hello = *out_.mutable_hello();
    hello.set_kind(v1::WORKER_KIND_CHECKPOINT);
    hello.set_worker(absl::StrCat("w", index));
    hello.set_incarnation(NewUuid());
    hello.set_protocol_version(WorkerRegistry::kProtocolVersion);
    hello.set_version(ESPALIER_VERSION);
    stub_->async()->Session(&context_, this);
    StartWrite(&out_);
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    if (ok) StartRead(&in_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (in_.has_welcome()) return StartRead(&in_);
    out_.Clear();
    if (in_.has_command()) out_.mutable_ack()->set_command_id(in_.command().command_id());
    StartWrite(&out_);
  }

 private:
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  v1::WorkerMessage out_;
  v1::CoordinatorMessage in_;
};

// Starts this program again as the process of `count` clients. It dies with this one.
pid_t StartClients(const std::string& address, int count) {
  const std::string number = absl::StrCat(count);
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  execl("/proc/self/exe", "b9_fanout", "--clients", address.c_str(), number.c_str(), nullptr);
  _exit(127);
}

void Stop(pid_t clients) {
  kill(clients, SIGKILL);
  waitpid(clients, nullptr, 0);
}

[[noreturn]] void RunClients(const std::string& address, int count) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < count; ++i) clients.push_back(std::make_unique<Client>(address, i));
  while (true) pause();
}

// --- the baseline: nothing but gRPC.
class Echo final : public v1::WorkerService::CallbackService {
 public:
  class Stream final : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
   public:
    explicit Stream(Answers& answers) : answers_(answers) { StartRead(&in_); }
    void Push() { StartWrite(&out_); }
    // Both ends of one message: an answer may come before its own write is said to be done.
    void OnWriteDone(bool) override { answers_.One(); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      answers_.One();
      StartRead(&in_);
    }
    void OnDone() override { delete this; }

   private:
    Answers& answers_;
    v1::WorkerMessage in_;
    const v1::CoordinatorMessage out_;
  };

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(grpc::CallbackServerContext*) override {
    MutexLock lock(mutex_);
    streams_.push_back(new Stream(answers_));  // deletes itself
    return streams_.back();
  }

  // Their Hello is the first answer of each.
  Answers& answers() { return answers_; }
  void FanOut() {
    std::vector<Stream*> streams;
    {
      MutexLock lock(mutex_);
      streams = streams_;
    }
    answers_.Expect(2 * static_cast<int>(streams.size()));
    for (Stream* stream : streams) stream->Push();
    answers_.Wait();
  }

 private:
  Answers answers_;
  Mutex mutex_;
  std::vector<Stream*> streams_ ABSL_GUARDED_BY(mutex_);
};

std::vector<double> MeasureEcho(int count) {
  Echo echo;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&echo);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  echo.answers().Expect(count);
  const pid_t clients = StartClients(absl::StrCat("127.0.0.1:", port), count);
  echo.answers().Wait();
  std::vector<double> seconds;
  for (int turn = 0; turn < kTurns; ++turn) seconds.push_back(Seconds([&] { echo.FanOut(); }));
  Stop(clients);
  server->Shutdown(std::chrono::system_clock::now());
  return seconds;
}

int64_t RssBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::vector<double> MeasureCoordinator(int count, int64_t* rss) {
  const std::unique_ptr<Journal> journal = NewMemoryJournal();
  Metrics metrics(Metrics::Program::kCoordinator);
  EventLoop loop(SystemClock());
  CoordinatorOptions options;
  options.lease.lease = options.lease.heartbeat_interval = absl::Hours(1);  // these clients have no heartbeat
  Coordinator coordinator(loop, *journal, options);
  const auto server = Check(GrpcServer::Listen("127.0.0.1:0", loop, coordinator, metrics));
  loop.Start();
  const pid_t clients = StartClients(server->address(), count);
  Answers answers;
  std::vector<std::string> workers;
  while (workers.size() < static_cast<size_t>(count)) {
    answers.Expect(1);
    loop.Post([&] {
      workers = coordinator.registry().Connected();
      answers.One();
    });
    answers.Wait();
    usleep(1000);
  }
  std::vector<double> seconds;
  for (int turn = 0; turn < kTurns; ++turn) {
    seconds.push_back(Seconds([&] {
      answers.Expect(count);
      loop.Post([&] {
        for (const std::string& worker : workers) {
          v1::Command command;
          command.mutable_leave_group();
          coordinator.registry().SendCommand(worker, {command},
                                             {.done = [&](const absl::StatusOr<v1::Ack>&) { answers.One(); }});
        }
      });
      answers.Wait();
    }));
  }
  *rss = RssBytes();
  Stop(clients);
  server->Shutdown(absl::ZeroDuration());
  loop.Stop();
  return seconds;
}

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

void Measure(int count) {
  int64_t rss = 0;
  // The coordinator first: what the other leaves behind in the process is not its memory.
  const std::vector<double> ours = MeasureCoordinator(count, &rss);
  const std::vector<double> bare = MeasureEcho(count);
  for (const auto& [name, share] : {std::pair{"p50", 0.5}, std::pair{"p99", 0.99}}) {
    PrintRatio("B9", absl::StrCat("fan-out-", count, "-", name), Percentile(bare, share), Percentile(ours, share),
               kTarget);
  }
  if (count < 512) return;
  std::printf("B9 coordinator-rss-at-%d %.0fMB target<%.0fMB %s\n", count, static_cast<double>(rss) / 1e6,
              static_cast<double>(kMaxRssBytes) / 1e6, rss < kMaxRssBytes ? "PASS" : "FAIL");
}

}  // namespace
}  // namespace espalier::bench

int main(int argc, char** argv) {
  using namespace espalier;
  using namespace espalier::bench;
  RaiseOpenFileLimit();
  if (argc == 4 && std::strcmp(argv[1], "--clients") == 0) RunClients(argv[2], std::atoi(argv[3]));
  (void)InitLog("b9", "error", "text");
  std::vector<int> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
  if (counts.empty()) counts = {1, 8, 64, 512};
  for (const int count : counts) {
    // A process for each: memory and threads of one size are none of the next.
    const pid_t child = fork();
    if (child == 0) {
      Measure(count);
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  return 0;
}
