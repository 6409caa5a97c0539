#pragma once

#include <memory>
#include <string>

#include "grpcpp/channel.h"

namespace espalier {

// A channel to the coordinator with connections of its own, so that bulk data and a session never share one, and so that
// every dial resolves the name afresh. Never through a proxy, whatever the environment says: a coordinator is on the same
// machine or network. A silent peer is found by HTTP/2 keepalive (ping every 10 s, answer within 5 s), also while a
// stream is silent; the coordinator's server permits exactly that.
std::shared_ptr<grpc::Channel> DialCoordinator(const std::string& address);

}  // namespace espalier
