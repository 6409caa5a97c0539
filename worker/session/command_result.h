#pragma once

#include <vector>

#include "espalier/v1/worker_service.pb.h"

namespace espalier {

// All that a command answers: pages first, in order, then the ack.
struct CommandResult {
  std::vector<v1::ResultPage> pages;
  v1::Ack ack;
};

}  // namespace espalier
