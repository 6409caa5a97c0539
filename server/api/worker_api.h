#pragma once

#include "espalier/v1/worker_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "server/run/coordinator.h"
#include "server/run/event_loop.h"

namespace espalier {

// WorkerService on a Coordinator: sessions become links of the registry, uploads go through relays. Called by gRPC's
// threads.
class WorkerApi final : public v1::WorkerService::CallbackService {
 public:
  // Both outlive the server.
  WorkerApi(EventLoop& loop, Coordinator& coordinator) : loop_(loop), coordinator_(coordinator) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(grpc::CallbackServerContext*) override;
  grpc::ServerReadReactor<v1::UploadParameterRequest>* UploadParameter(grpc::CallbackServerContext*,
                                                                       v1::UploadParameterResponse*) override;

 private:
  EventLoop& loop_;
  Coordinator& coordinator_;
};

}  // namespace espalier
