#include "server/api/grpc_server.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "proto/support/errors.h"
#include "server/metrics/rpc_metrics.h"

namespace espalier {

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Listen(const std::string& address, EventLoop& loop,
                                                               Coordinator& coordinator, Metrics& metrics) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<GrpcServer> out(new GrpcServer(loop, coordinator));
  grpc::ServerBuilder builder;
  // Without this a second coordinator would silently share the port.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  MeasureRpcs(builder, metrics);
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&out->sparsification_);
  builder.RegisterService(&out->worker_);
  out->server_ = builder.BuildAndStart();
  if (out->server_ == nullptr || (port == 0 && !absl::StartsWith(address, "unix:"))) {
    return MakeError(v1::ERROR_REASON_CANNOT_BIND,
                     absl::StrCat("cannot listen at ", address,
                                  ": it is in use or no address of this machine; choose another with --listen"),
                     {{"address", address}});
  }
  out->address_ = port == 0 ? address : absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
  grpc::HealthCheckServiceInterface* health = out->server_->GetHealthCheckService();
  for (const char* service : {v1::SparsificationService::service_full_name(), v1::WorkerService::service_full_name()}) {
    health->SetServingStatus(service, true);
  }
  return out;
}

GrpcServer::~GrpcServer() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

void GrpcServer::SetNotServing() {
  server_->GetHealthCheckService()->Shutdown();
}

void GrpcServer::Shutdown(absl::Duration grace) {
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(grace));
  server_->Wait();
}

}  // namespace espalier
