#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/metrics/metrics.h"
#include "server/api/sparsification_api.h"
#include "server/api/worker_api.h"

namespace espalier {

// HTTP/2 keepalive of both ends, which must agree: pings faster than the server tolerates would be punished.
inline constexpr int kKeepaliveTimeMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;
inline constexpr int kMinPingIntervalMs = 5'000;

// The two services, grpc.health.v1 and reflection on one listening address. Made, used and destroyed by one thread.
class GrpcServer {
 public:
  // `address`: host:port; port 0 takes a free one. CANNOT_BIND (address), also for an address in use. The loop, the
  // coordinator and `metrics` outlive the server; the loop must run by the time of the first call.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Listen(const std::string& address, EventLoop& loop,
                                                            Coordinator& coordinator, Metrics& metrics);
  ~GrpcServer();

  // host:port that is really listened at.
  const std::string& address() const { return address_; }

  // NOT_SERVING from now on; calls go on.
  void SetNotServing();
  // Waits for calls to end, at most `grace`, then ends them. The coordinator should have been drained.
  void Shutdown(absl::Duration grace);

 private:
  GrpcServer(EventLoop& loop, Coordinator& coordinator)
      : sparsification_(loop, coordinator), worker_(loop, coordinator) {}

  SparsificationApi sparsification_;
  WorkerApi worker_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace espalier
