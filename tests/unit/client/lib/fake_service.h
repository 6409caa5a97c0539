#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "espalier/v1/sparsification_service.grpc.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/support/mutex.h"

namespace espalier::testing {

// A SparsificationService on port 0 of loopback whose answers a test sets. Hooks are called on gRPC's threads.
class FakeService final : public v1::SparsificationService::Service {
 public:
  explicit FakeService(const std::string& address = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeService() override { Stop(); }

  // Streams that are open are cancelled.
  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_.reset();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  std::function<grpc::Status(const v1::CreateRunRequest&, v1::CreateRunResponse&)> create_run;
  std::function<grpc::Status(const v1::GetRunRequest&, v1::Run&)> get_run;
  std::function<grpc::Status(const v1::GetPlanRequest&, v1::GetPlanResponse&)> get_plan;
  std::function<grpc::Status(const v1::ListRunsRequest&, v1::ListRunsResponse&)> list_runs;
  // The events are then sent.
  std::function<grpc::Status(const v1::WatchRunRequest&, std::vector<v1::RunEvent>&)> watch_run;
  std::function<grpc::Status(const v1::ReadParameterRequest&, std::vector<v1::ReadParameterResponse>&)> read_parameter;
  std::function<grpc::Status(const v1::ComputeSparsityReportRequest&, std::vector<v1::ComputeSparsityReportResponse>&)>
      report;

  grpc::Status CreateRun(grpc::ServerContext*, const v1::CreateRunRequest* request,
                         v1::CreateRunResponse* response) override {
    return create_run(*request, *response);
  }
  grpc::Status GetRun(grpc::ServerContext*, const v1::GetRunRequest* request, v1::Run* response) override {
    return get_run(*request, *response);
  }
  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest* request,
                       v1::GetPlanResponse* response) override {
    return get_plan(*request, *response);
  }
  grpc::Status ListRuns(grpc::ServerContext*, const v1::ListRunsRequest* request,
                        v1::ListRunsResponse* response) override {
    return list_runs(*request, *response);
  }
  grpc::Status WatchRun(grpc::ServerContext*, const v1::WatchRunRequest* request,
                        grpc::ServerWriter<v1::RunEvent>* writer) override {
    std::vector<v1::RunEvent> events;
    const grpc::Status status = watch_run(*request, events);
    for (const v1::RunEvent& event : events) writer->Write(event);
    return status;
  }
  grpc::Status ReadParameter(grpc::ServerContext*, const v1::ReadParameterRequest* request,
                             grpc::ServerWriter<v1::ReadParameterResponse>* writer) override {
    std::vector<v1::ReadParameterResponse> parts;
    const grpc::Status status = read_parameter(*request, parts);
    for (const v1::ReadParameterResponse& part : parts) writer->Write(part);
    return status;
  }
  grpc::Status ComputeSparsityReport(grpc::ServerContext*, const v1::ComputeSparsityReportRequest* request,
                                     grpc::ServerWriter<v1::ComputeSparsityReportResponse>* writer) override {
    std::vector<v1::ComputeSparsityReportResponse> parts;
    const grpc::Status status = report(*request, parts);
    for (const v1::ComputeSparsityReportResponse& part : parts) writer->Write(part);
    return status;
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace espalier::testing
