// The program espalier-coordinator as a process: flags, exit codes, signals, its journal.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "espalier/v1/sparsification_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/support/errors.h"
#include "proto/support/grpc_status.h"
#include "tests/support/fake_worker_client.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"

namespace espalier {
namespace {

using testing::FakeModel;
using testing::FakeWorker;
using testing::FakeWorkerClient;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::ReadFile;
using testing::TempDir;

// One process; killed at the end.
class Process {
 public:
  Process(std::vector<std::string> arguments, const std::string& log) {
    int ends[2];
    if (pipe(ends) != 0) abort();
    arguments.insert(arguments.begin(), std::getenv("ESPALIER_COORDINATOR_PROGRAM"));
    arguments.insert(arguments.end(), {"--port-fd", std::to_string(ends[1])});
    if (std::find(arguments.begin(), arguments.end(), "--metrics-listen") == arguments.end()) {
      arguments.insert(arguments.end(), {"--metrics-listen", "off"});
    }
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      const int out = open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
      dup2(out, 1);
      dup2(out, 2);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    // Ends when the address is written, or with the process.
    char c;
    while (read(ends[0], &c, 1) == 1 && c != '\n') address_ += c;
    close(ends[0]);
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    Wait();
  }

  void Signal(int signal) { kill(pid_, signal); }
  // The exit code; -signal when killed by one.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // Empty when it ended before it listened.
  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  std::string address_;
};

std::unique_ptr<v1::SparsificationService::Stub> Dial(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return v1::SparsificationService::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args));
}

class CoordinatorProcessTest : public ::testing::Test {
 protected:
  std::string Log() { return ReadFile(dir_ / "log"); }
  std::unique_ptr<Process> Start(std::vector<std::string> arguments) {
    return std::make_unique<Process>(std::move(arguments), dir_ / "log");
  }
  std::unique_ptr<Process> StartKept(const std::string& listen = "127.0.0.1:0") {
    return Start({"--listen", listen, "--state-dir", dir_ / "state"});
  }
  TempDir dir_;
};

TEST_F(CoordinatorProcessTest, TellsItsAddressAndEndsOnSigterm) {  // known-bugs 85
  const auto process = StartKept();
  ASSERT_THAT(process->address(), HasSubstr("127.0.0.1:"));
  const auto stub = Dial(process->address());
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::GetServerInfoResponse info;
  EXPECT_THAT(FromGrpc(stub->GetServerInfo(&context, {}, &info)), IsOk());
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), kExitOk);
}

TEST_F(CoordinatorProcessTest, EndsOnSigtermWithLiveStreams) {  // G13
  const auto process = StartKept();
  FakeWorkerClient worker(process->address(), FakeWorker("w0", FakeModel({"a.weight"})));
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), kExitOk);
  EXPECT_FALSE(worker.Wait().ok());
}

TEST_F(CoordinatorProcessTest, APortInUseIsOneClearLine) {  // known-bugs 73
  const auto first = StartKept();
  const auto second = Start({"--listen", first->address()});
  EXPECT_EQ(second->address(), "");
  EXPECT_EQ(second->Wait(), kExitUnreachable);
  EXPECT_THAT(Log(), HasSubstr("CANNOT_BIND: cannot listen at " + first->address()));
}

TEST_F(CoordinatorProcessTest, AnAddressOfNobodyCannotBeBound) {  // known-bugs 62
  const auto process = Start({"--listen", "192.0.2.1:4770"});
  EXPECT_EQ(process->Wait(), kExitUnreachable);
}

TEST_F(CoordinatorProcessTest, OneJournalOneProcess) {
  const auto first = StartKept();
  const auto second = StartKept();
  EXPECT_EQ(second->Wait(), kExitStorage);
  EXPECT_THAT(Log(), HasSubstr("STORAGE_UNWRITABLE"));
}

TEST_F(CoordinatorProcessTest, BadFlagsAreUsageErrors) {
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"--nonsense"},
                                              {"--lease", "soon"},
                                              {"--lease", "0s"},
                                              {"--lease", "1s", "--heartbeat-interval", "1s"},
                                              {"--model-root", "relative"}}) {
    EXPECT_EQ(Start(bad)->Wait(), kExitUsage) << bad[0];
  }
  EXPECT_EQ(Start({"--version"})->Wait(), kExitOk);
  EXPECT_EQ(Start({"--help"})->Wait(), kExitOk);
  EXPECT_THAT(Log(), HasSubstr("Example:"));
}

TEST_F(CoordinatorProcessTest, WhatWasAcknowledgedSurvivesKill) {  // G1
  std::string address;
  v1::CreateRunRequest request;
  request.mutable_spec()->set_recipe(
      "s_stage:\n  p_modifiers:\n    - ConstantPruningModifier: {targets: [a.weight]}\n");
  request.mutable_spec()->set_model_path("/models/tiny");
  request.mutable_spec()->set_world_size(2);
  request.set_request_id("0b8a4f0e-6f0c-4c53-8a0e-3a3f6f6b8c11");
  v1::CreateRunResponse first;
  {
    const auto process = StartKept();
    address = process->address();
    FakeWorkerClient worker(address, FakeWorker("w0", FakeModel({"a.weight"})));
    const auto stub = Dial(address);
    v1::ListWorkersResponse workers;
    while (workers.workers_size() == 0) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      ASSERT_TRUE(stub->ListWorkers(&context, {}, &workers).ok());
    }
    grpc::ClientContext context;
    ASSERT_THAT(FromGrpc(stub->CreateRun(&context, request, &first)), IsOk());
    process->Signal(SIGKILL);
    EXPECT_EQ(process->Wait(), -SIGKILL);
  }
  const auto process = StartKept(address);  // the same port, at once (known-bugs 39)
  ASSERT_EQ(process->address(), address) << Log();
  const auto stub = Dial(address);
  v1::CreateRunResponse again;
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  ASSERT_THAT(FromGrpc(stub->CreateRun(&context, request, &again)), IsOk());
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
  grpc::ClientContext list;
  v1::ListRunsResponse runs;
  ASSERT_THAT(FromGrpc(stub->ListRuns(&list, {}, &runs)), IsOk());
  ASSERT_EQ(runs.runs_size(), 1);
  EXPECT_EQ(runs.runs(0).name(), first.run().name());
  EXPECT_EQ(runs.runs(0).state(), v1::Run::STATE_QUEUED);
}

}  // namespace
}  // namespace espalier
