#include "client/lib/client.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/crc32.h"
#include "proto/support/grpc_status.h"
#include "proto/support/uuid.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/client/lib/fake_service.h"

namespace espalier {
namespace {

using ::espalier::testing::FakeService;
using ::espalier::testing::HasReason;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Client> ClientOf(const std::string& address, ClientOptions options = {}) {
  options.address = address;
  auto client = Client::Create(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

// A socket of loopback that accepts connections in its backlog and never says a word, like a stopped process.
class SilentPort {
 public:
  SilentPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    sockaddr* raw = static_cast<sockaddr*>(static_cast<void*>(&address));
    EXPECT_EQ(bind(fd_, raw, size), 0);
    EXPECT_EQ(getsockname(fd_, raw, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentPort() { close(fd_); }
  void Listen() { EXPECT_EQ(listen(fd_, 16), 0); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(Client, NamesAnAddressThatRefuses) {  // known-bugs 64
  const SilentPort port;                   // bound and not listening: connections are refused
  const absl::Time start = absl::Now();
  const auto info = ClientOf(port.address())->GetServerInfo();
  EXPECT_THAT(info, HasReason(v1::ERROR_REASON_UNREACHABLE, HasSubstr(port.address())));
  EXPECT_EQ(MetadataOf(info.status(), "address"), port.address());
  EXPECT_LT(absl::Now() - start, absl::Seconds(4));
}

TEST(Client, NamesAnAddressThatIsSilent) {  // known-bugs 64
  SilentPort port;
  port.Listen();
  ClientOptions options;
  options.connect.silent = absl::Milliseconds(300);
  const absl::Time start = absl::Now();
  EXPECT_THAT(ClientOf(port.address(), options)->ListWorkers(),
              HasReason(v1::ERROR_REASON_UNREACHABLE, HasSubstr("--coordinator")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
}

TEST(Client, IgnoresProxies) {  // known-bugs 61
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"}) setenv(name, "http://127.0.0.1:9", 1);
  FakeService service;
  service.get_run = [](const auto& request, v1::Run& run) {
    run.set_name(request.name());
    return grpc::Status::OK;
  };
  const auto run = ClientOf(service.address())->GetRun("runs/a");
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"}) unsetenv(name);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->name(), "runs/a");
}

TEST(Client, GivesMutationsAnIdAndKeepsItOverRetries) {
  FakeService service;
  std::vector<std::string> ids;
  service.create_run = [&](const v1::CreateRunRequest& request, v1::CreateRunResponse& response) {
    ids.push_back(request.request_id());
    if (ids.size() < 3) return ToGrpc(MakeError(v1::ERROR_REASON_DRAINING, "draining"));
    response.mutable_run()->set_name("runs/b");
    return grpc::Status::OK;
  };
  const auto run = ClientOf(service.address())->CreateRun({});
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_TRUE(IsUuid(ids[0]));
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(ids[0], ids[2]);
}

TEST(Client, DoesNotRetryWhatWillNotChange) {
  FakeService service;
  int calls = 0;
  service.create_run = [&](const auto&, auto&) {
    ++calls;
    return ToGrpc(MakeError(v1::ERROR_REASON_RECIPE_INVALID, "bad field", {{"field", "sparsity"}}));
  };
  const auto run = ClientOf(service.address())->CreateRun({});
  EXPECT_THAT(run, HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr("bad field")));
  EXPECT_EQ(MetadataOf(run.status(), "field"), "sparsity");
  EXPECT_EQ(calls, 1);
}

TEST(Client, RetriesOnlyWithinTheDeadline) {
  FakeService service;
  std::atomic<int> calls = 0;
  service.get_run = [&](const auto&, auto&) {
    ++calls;
    return ToGrpc(MakeError(v1::ERROR_REASON_DRAINING, "draining"));
  };
  ClientOptions options;
  options.call_timeout = absl::Milliseconds(500);
  const absl::Time start = absl::Now();
  EXPECT_THAT(ClientOf(service.address(), options)->GetRun("runs/a"), HasReason(v1::ERROR_REASON_DRAINING));
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
  EXPECT_GT(calls, 1);
}

TEST(Client, CollectsPages) {
  FakeService service;
  service.list_runs = [](const v1::ListRunsRequest& request, v1::ListRunsResponse& response) {
    const int first = request.page_token().empty() ? 0 : std::stoi(request.page_token());
    for (int i = first; i < first + 2; ++i) response.add_runs()->set_name(absl::StrCat("runs/", i));
    response.set_next_page_token(absl::StrCat(first + 2));
    return grpc::Status::OK;
  };
  const auto runs = ClientOf(service.address())->ListRuns(5);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_EQ(runs->size(), 6u);
  service.get_plan = [](const v1::GetPlanRequest& request, v1::GetPlanResponse& response) {
    const bool first = request.page_token().empty();
    if (first) response.mutable_summary()->set_pruned_parameters(2);
    response.add_parameters()->set_name(first ? "a" : "b");
    response.set_next_page_token(first ? "more" : "");
    return grpc::Status::OK;
  };
  const auto plan = ClientOf(service.address())->GetPlan({});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->summary.pruned_parameters(), 2);
  ASSERT_EQ(plan->parameters.size(), 2u);
  EXPECT_EQ(plan->parameters[1].name(), "b");
}

v1::RunEvent Event(int64_t revision, v1::Run::State state) {
  v1::RunEvent event;
  event.set_revision(revision);
  event.mutable_run()->set_revision(revision);
  event.mutable_run()->set_state(state);
  return event;
}

TEST(Watch, ResumesAfterTheLastEventOfABrokenStream) {
  FakeService service;
  std::vector<int64_t> asked;
  service.watch_run = [&](const v1::WatchRunRequest& request, std::vector<v1::RunEvent>& events) {
    asked.push_back(request.resume_revision());
    if (asked.size() == 1) {
      events = {Event(1, v1::Run::STATE_QUEUED), Event(2, v1::Run::STATE_STARTING)};
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
    }
    if (asked.size() == 2) {
      events = {Event(3, v1::Run::STATE_RUNNING)};
      return ToGrpc(MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED, "reads too slowly"));
    }
    events = {Event(4, v1::Run::STATE_SUCCEEDED)};
    return grpc::Status::OK;
  };
  std::vector<int64_t> seen;
  EXPECT_OK(ClientOf(service.address())->WatchRun("runs/a", 0, [&](const v1::RunEvent& event) {
    seen.push_back(event.revision());
    return true;
  }));
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(asked, ElementsAre(0, 2, 3));
}

TEST(Watch, BeginsAnewWhereHistoryIsGone) {
  FakeService service;
  std::vector<int64_t> asked;
  service.watch_run = [&](const v1::WatchRunRequest& request, std::vector<v1::RunEvent>& events) {
    asked.push_back(request.resume_revision());
    if (request.resume_revision() == 7) return ToGrpc(MakeError(v1::ERROR_REASON_HISTORY_COMPACTED, "gone"));
    events = {Event(20, v1::Run::STATE_FAILED)};
    return grpc::Status::OK;
  };
  EXPECT_OK(ClientOf(service.address())->WatchRun("runs/a", 7, [](const auto&) { return true; }));
  EXPECT_THAT(asked, ElementsAre(7, 0));
}

TEST(Watch, EndsWhereNothingFollowsTheLastRevision) {
  FakeService service;
  service.watch_run = [](const auto&, auto&) { return grpc::Status::OK; };
  service.get_run = [](const auto&, v1::Run& run) {
    run.set_revision(9);
    run.set_state(v1::Run::STATE_SUCCEEDED);
    return grpc::Status::OK;
  };
  EXPECT_OK(ClientOf(service.address())->WatchRun("runs/a", 9, [](const auto&) { return true; }));
}

TEST(Watch, GivesUpOnACoordinatorThatStaysAway) {
  FakeService service;
  service.watch_run = [](const auto&, std::vector<v1::RunEvent>& events) {
    events = {Event(1, v1::Run::STATE_RUNNING)};
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  };
  ClientOptions options;
  options.connect.refused = absl::Milliseconds(100);
  options.resume_timeout = absl::Milliseconds(500);
  std::thread stopper;
  const absl::Status status = ClientOf(service.address(), options)->WatchRun("runs/a", 0, [&](const auto&) {
    if (!stopper.joinable()) stopper = std::thread([&] { service.Stop(); });
    return true;
  });
  stopper.join();
  EXPECT_THAT(status, HasReason(v1::ERROR_REASON_UNREACHABLE, HasSubstr(service.address())));
}

TEST(Watch, IsCancelledFromAnotherThread) {
  FakeService service;
  Mutex mutex;
  CondVar changed;
  bool cancelled = false;
  service.watch_run = [&](const auto&, auto&) {
    const MutexLock lock(mutex);
    while (!cancelled) changed.Wait(mutex);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "late");
  };
  Cancellation cancellation;
  std::thread canceller([&] {
    cancellation.Cancel();
    const MutexLock lock(mutex);
    cancelled = true;
    changed.SignalAll();
  });
  const absl::Status status = ClientOf(service.address())
                                  ->WatchRun(
                                      "runs/a", 0, [](const auto&) { return true; }, &cancellation);
  canceller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST(Watch, AnswersAnUnknownRun) {
  FakeService service;
  service.watch_run = [](const auto&, auto&) { return ToGrpc(MakeError(v1::ERROR_REASON_RUN_NOT_FOUND, "no runs/x")); };
  EXPECT_THAT(ClientOf(service.address())->WatchRun("runs/x", 0, [](const auto&) { return true; }),
              HasReason(v1::ERROR_REASON_RUN_NOT_FOUND, HasSubstr("runs/x")));
}

std::vector<v1::ReadParameterResponse> Download() {
  std::vector<v1::ReadParameterResponse> parts(3);
  parts[0].mutable_header()->set_total_chunks(2);
  parts[0].mutable_header()->set_total_bytes(6);
  const std::string data[] = {"abcd", "ef"};
  for (int i = 0; i < 2; ++i) {
    parts[i + 1].mutable_chunk()->set_index(i);
    parts[i + 1].mutable_chunk()->set_data(data[i]);
    parts[i + 1].mutable_chunk()->set_crc32(Crc32(0, data[i].data(), data[i].size()));
  }
  return parts;
}

absl::Status Read(const std::vector<v1::ReadParameterResponse>& parts, std::string* out, grpc::Status end = {}) {
  FakeService service;
  service.read_parameter = [&](const auto&, std::vector<v1::ReadParameterResponse>& sent) {
    sent = parts;
    return end;
  };
  DownloadSink sink;
  sink.header = [](const auto&) { return absl::OkStatus(); };
  sink.data = [out](absl::string_view data) {
    out->append(data.data(), data.size());
    return absl::OkStatus();
  };
  return ClientOf(service.address())->ReadParameter({}, sink);
}

TEST(Download, DeliversInOrder) {
  std::string out;
  EXPECT_OK(Read(Download(), &out));
  EXPECT_EQ(out, "abcdef");
}

TEST(Download, RefusesWhatIsNotAsAnnounced) {
  std::string out;
  auto parts = Download();
  parts[2].mutable_chunk()->set_crc32(1);
  EXPECT_THAT(Read(parts, &out), HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("checksum")));
  parts = Download();
  parts[2].mutable_chunk()->set_index(2);
  EXPECT_THAT(Read(parts, &out), HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("chunk 2 instead of 1")));
  parts = Download();
  parts.pop_back();
  EXPECT_THAT(Read(parts, &out), HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("4 of 6 bytes")));
  parts = Download();
  parts.erase(parts.begin());
  EXPECT_THAT(Read(parts, &out), HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("before the header")));
}

TEST(Download, PassesTheServersErrorOn) {
  std::string out;
  auto parts = Download();
  parts.pop_back();
  EXPECT_THAT(Read(parts, &out, ToGrpc(MakeError(v1::ERROR_REASON_WORKER_LOST, "rank 1"))),
              HasReason(v1::ERROR_REASON_WORKER_LOST, HasSubstr("rank 1")));
}

TEST(Report, CollectsPagesAndWantsTheSummary) {
  FakeService service;
  bool summary = true;
  service.report = [&](const auto& request, std::vector<v1::ComputeSparsityReportResponse>& parts) {
    EXPECT_EQ(request.mode(), v1::REPORT_MODE_GATHER);
    parts.resize(summary ? 3 : 2);
    parts[0].mutable_page()->add_parameters()->set_name("a");
    parts[1].mutable_page()->add_parameters()->set_name("b");
    if (summary) parts[2].mutable_summary()->mutable_sparsity()->set_total(7);
    return grpc::Status::OK;
  };
  const auto client = ClientOf(service.address());
  const auto report = client->ComputeSparsityReport("runs/a", v1::REPORT_MODE_GATHER);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->parameters.size(), 2u);
  EXPECT_EQ(report->summary.total(), 7);
  summary = false;
  EXPECT_THAT(client->ComputeSparsityReport("runs/a", v1::REPORT_MODE_GATHER),
              HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("without its summary")));
}

}  // namespace
}  // namespace espalier
