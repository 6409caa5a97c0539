#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/metrics/http_server.h"
#include "server/run/coordinator.h"
#include "server/run/event_loop.h"
#include "server/run/snapshot.h"

namespace espalier {

// The page for people without a dashboard: runs, plan and progress of one, workers, and sparsity by layer as bars. Plain
// HTML and SVG, nothing loaded from elsewhere, no script; whatever users named is escaped. Pure.
std::string RenderStatus(const Snapshot& snapshot, absl::Time now);

// Serves it: `query` may name a run (run=runs%2Fr12). Asks the event loop, which never works long; answers 503 where it does
// not answer within 5 s. Called by the HTTP server's threads; loop and coordinator outlive the last call.
HttpReply ServeStatus(EventLoop& loop, const Coordinator& coordinator, absl::string_view query);

}  // namespace espalier
