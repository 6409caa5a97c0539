#include "server/api/grpc_server.h"

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "espalier/v1/sparsification_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "proto/support/grpc_status.h"
#include "proto/support/uuid.h"
#include "server/store/journal.h"
#include "tests/support/fake_worker_client.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::FakeModel;
using testing::FakeWorker;
using testing::FakeWorkerClient;
using testing::HasReason;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr char kRecipe[] =
    "s_stage:\n  run_type: oneshot\n  p_modifiers:\n"
    "    - MagnitudePruningModifier: {targets: [\"re:.*\"], final_sparsity: 0.5}\n";

class GrpcServerTest : public ::testing::Test {
 protected:
  GrpcServerTest() {
    CoordinatorOptions options;
    options.lease.lease = absl::Minutes(5);  // fake workers beat only when spoken to
    coordinator_ = std::make_unique<Coordinator>(loop_, *journal_, options);
    EXPECT_THAT(coordinator_->Load(), IsOk());
    auto server = GrpcServer::Listen("127.0.0.1:0", loop_, *coordinator_, metrics_);
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
    loop_.Start();
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), args);
    stub_ = v1::SparsificationService::NewStub(channel_);
  }

  ~GrpcServerTest() override { End(); }

  void End() {
    if (server_ == nullptr) return;
    loop_.Post([this] { coordinator_->Drain(); });
    server_->Shutdown(absl::Seconds(10));
    loop_.Stop();
    server_ = nullptr;
  }

  // Returns once all are listed: the loop has dealt with what came before.
  void AddWorkers(int count) {
    for (int i = 0; i < count; ++i) {
      workers_.push_back(std::make_unique<FakeWorkerClient>(
          server_->address(), FakeWorker("w" + std::to_string(i), FakeModel({"a.weight", "b.weight"}))));
    }
    v1::ListWorkersResponse response;
    while (response.workers_size() < count) {
      grpc::ClientContext context;
      ASSERT_TRUE(stub_->ListWorkers(&context, {}, &response).ok());
    }
  }

  absl::StatusOr<v1::Run> Create(int world_size, bool hold) {
    v1::CreateRunRequest request;
    request.mutable_spec()->set_recipe(kRecipe);
    request.mutable_spec()->set_model_path("/models/tiny");
    request.mutable_spec()->set_world_size(world_size);
    request.mutable_spec()->set_hold(hold);
    request.set_request_id(NewUuid());
    grpc::ClientContext context;
    v1::CreateRunResponse response;
    const absl::Status status = FromGrpc(stub_->CreateRun(&context, request, &response));
    if (!status.ok()) return status;
    return response.run();
  }

  // Watches until the run is held or has ended.
  v1::Run Settle(const std::string& name) {
    grpc::ClientContext context;
    v1::WatchRunRequest request;
    request.set_name(name);
    const auto reader = stub_->WatchRun(&context, request);
    v1::RunEvent event;
    v1::Run last;
    while (reader->Read(&event)) {
      if (event.has_run()) last = event.run();
      if (last.has_sparsity() && last.hold()) {
        context.TryCancel();
        break;
      }
    }
    reader->Finish();
    return last;
  }

  Metrics metrics_{Metrics::Program::kCoordinator};
  std::unique_ptr<Journal> journal_ = NewMemoryJournal();
  EventLoop loop_{SystemClock()};
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::SparsificationService::Stub> stub_;
  std::vector<std::unique_ptr<FakeWorkerClient>> workers_;
};

TEST_F(GrpcServerTest, ARunFromCreationToItsEnd) {
  AddWorkers(2);
  const auto created = Create(2, /*hold=*/false);
  ASSERT_THAT(created, IsOk());
  EXPECT_EQ(created->plan().pruned_parameters(), 2);
  grpc::ClientContext context;
  v1::WatchRunRequest request;
  request.set_name(created->name());
  request.set_resume_revision(1);
  const auto reader = stub_->WatchRun(&context, request);
  v1::RunEvent event;
  int64_t revision = 1;
  while (reader->Read(&event)) EXPECT_EQ(event.revision(), ++revision);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(event.run().state(), v1::Run::STATE_SUCCEEDED);
  EXPECT_EQ(event.run().sparsity().masked(), 128);
}

TEST_F(GrpcServerTest, ParametersAndReportsOfAHeldRun) {
  AddWorkers(2);
  const auto created = Create(2, /*hold=*/true);
  ASSERT_THAT(created, IsOk());
  ASSERT_EQ(Settle(created->name()).state(), v1::Run::STATE_RUNNING);
  {
    grpc::ClientContext context;
    v1::ReadParameterRequest request;
    request.set_name(created->name());
    request.set_parameter("b.weight");
    const auto reader = stub_->ReadParameter(&context, request);
    v1::ReadParameterResponse response;
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.header().total_chunks(), 6);
    int64_t index = 0;
    while (reader->Read(&response)) {
      EXPECT_EQ(response.chunk().index(), index);
      EXPECT_EQ(response.chunk().data()[0], static_cast<char>('a' + index));
      ++index;
    }
    EXPECT_THAT(FromGrpc(reader->Finish()), IsOk());
    EXPECT_EQ(index, 6);
    EXPECT_TRUE(workers_[0]->upload_status().ok());
  }
  {
    // A client that goes away in the middle: the next is served all the same.
    grpc::ClientContext context;
    v1::ReadMaskRequest request;
    request.set_name(created->name());
    request.set_parameter("a.weight");
    const auto reader = stub_->ReadMask(&context, request);
    v1::ReadMaskResponse response;
    ASSERT_TRUE(reader->Read(&response));
    context.TryCancel();
    reader->Finish();
  }
  grpc::ClientContext context;
  v1::ComputeSparsityReportRequest request;
  request.set_name(created->name());
  const auto reader = stub_->ComputeSparsityReport(&context, request);
  v1::ComputeSparsityReportResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.page().parameters_size(), 2);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.summary().sparsity().masked(), 128);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_THAT(FromGrpc(reader->Finish()), IsOk());
}

TEST_F(GrpcServerTest, ErrorsCarryReasonAndMetadata) {
  v1::GetRunRequest request;
  request.set_name("runs/none");
  v1::Run response;
  grpc::ClientContext context;
  const grpc::Status status = stub_->GetRun(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(FromGrpc(status), HasReason(v1::ERROR_REASON_RUN_NOT_FOUND));
  EXPECT_EQ(MetadataOf(FromGrpc(status), "run"), "runs/none");
}

TEST_F(GrpcServerTest, EveryMethodIsServed) {
  const auto* file = v1::CreateRunRequest::descriptor()->file();
  const auto* service = file->FindServiceByName("SparsificationService");
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string path = "/espalier.v1.SparsificationService/" + service->method(i)->name();
    // An empty request; any answer but UNIMPLEMENTED is one of ours.
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    const grpc::Slice nothing;
    const grpc::ByteBuffer request(&nothing, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, path, grpc::StubOptions(), &request, &response,
                   [&](const grpc::Status& status) { done.set_value(status); });
    const grpc::Status status = done.get_future().get();
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << path;
  }
}

TEST_F(GrpcServerTest, ASecondServerCannotTakeThePort) {  // known-bugs 73
  EventLoop loop(SystemClock());
  const auto journal = NewMemoryJournal();
  Coordinator coordinator(loop, *journal, {});
  const auto second = GrpcServer::Listen(server_->address(), loop, coordinator, metrics_);
  EXPECT_THAT(second, HasReason(v1::ERROR_REASON_CANNOT_BIND, HasSubstr(server_->address())));
}

TEST_F(GrpcServerTest, StreamsEndWhenItDrains) {  // G13
  AddWorkers(1);
  const auto created = Create(1, /*hold=*/true);
  ASSERT_THAT(created, IsOk());
  ASSERT_EQ(Settle(created->name()).state(), v1::Run::STATE_RUNNING);
  const auto queued = Create(4, /*hold=*/false);
  ASSERT_THAT(queued, IsOk());
  grpc::ClientContext context;
  v1::WatchRunRequest request;
  request.set_name(queued->name());
  const auto reader = stub_->WatchRun(&context, request);
  v1::RunEvent event;
  ASSERT_TRUE(reader->Read(&event));
  server_->SetNotServing();
  End();
  while (reader->Read(&event)) {
  }
  EXPECT_THAT(FromGrpc(reader->Finish()), HasReason(v1::ERROR_REASON_DRAINING));
  EXPECT_THAT(FromGrpc(workers_[0]->Wait()), HasReason(v1::ERROR_REASON_DRAINING));
}

TEST_F(GrpcServerTest, UploadsThatNobodyAskedForAreRefused) {
  AddWorkers(1);
  const auto stub = v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  v1::UploadParameterResponse response;
  const auto writer = stub->UploadParameter(&context, &response);
  v1::UploadParameterRequest request;
  request.set_command_id(77);
  request.set_worker("w0");
  writer->Write(request);
  writer->WritesDone();
  EXPECT_THAT(FromGrpc(writer->Finish()), HasReason(v1::ERROR_REASON_OPERATION_NOT_FOUND));
  grpc::ClientContext empty;
  const auto nothing = stub->UploadParameter(&empty, &response);
  nothing->WritesDone();
  EXPECT_EQ(nothing->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcServerTest, AReplacedWorkerIsDismissed) {  // G5
  AddWorkers(1);
  FakeWorkerClient fresh(server_->address(), FakeWorker("w0", FakeModel({"a.weight"})));
  EXPECT_THAT(FromGrpc(workers_[0]->Wait()), HasReason(v1::ERROR_REASON_WORKER_LOST));
  const auto created = Create(1, /*hold=*/false);
  ASSERT_THAT(created, IsOk());
  EXPECT_EQ(Settle(created->name()).state(), v1::Run::STATE_SUCCEEDED);
}

TEST_F(GrpcServerTest, ManyIdleSessionsAndStillAnAnswer) {  // known-bugs 60
  AddWorkers(65);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  v1::GetServerInfoResponse response;
  EXPECT_TRUE(stub_->GetServerInfo(&context, {}, &response).ok());
}

// A client that pings as often as ours do must not be punished (known-bugs 57).
TEST(KeepaliveTest, ClientsPingsAreWithinWhatTheServerTolerates) {
  EXPECT_LT(kMinPingIntervalMs, kKeepaliveTimeMs);
  EXPECT_LT(kKeepaliveTimeoutMs, kKeepaliveTimeMs);
}

}  // namespace
}  // namespace espalier
