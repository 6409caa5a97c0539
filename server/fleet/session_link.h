#pragma once

#include "absl/status/status.h"
#include "espalier/v1/worker_service.pb.h"

namespace espalier {

// The coordinator's end of one stream of a worker. Both calls return at once and may be made from the event loop only;
// after Close nothing more is sent.
class SessionLink {
 public:
  virtual ~SessionLink() = default;
  // Queued; written in order. Dropped when the stream has ended.
  virtual void Send(const v1::CoordinatorMessage& message) = 0;
  // Ends the stream with `status` after what is queued.
  virtual void Close(const absl::Status& status) = 0;
};

}  // namespace espalier
