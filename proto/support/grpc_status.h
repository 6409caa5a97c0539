#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace espalier {

// Both directions carry the ErrorInfo in grpc-status-details-bin, as google.rpc.Status.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace espalier
