#pragma once

#include "grpcpp/server_builder.h"
#include "proto/metrics/metrics.h"

namespace espalier {

// Counts and times every RPC of the server that `builder` builds, also those of health and reflection, under the names
// and with the spellings that dashboards of the gRPC ecosystem know (grpc_server_*). `metrics` outlives the server.
void MeasureRpcs(grpc::ServerBuilder& builder, Metrics& metrics);

}  // namespace espalier
