#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"

namespace espalier {

// Where the messages of a streaming answer go. Thread-safe. Bounded: who writes looks at Room first, and is called when
// there is some again.
template <typename Message>
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // Messages that may be written now; 0 also once the client has gone.
  virtual size_t Room() const = 0;
  // The client has gone or Finish was called: writing is of no use.
  virtual bool Closed() const = 0;
  // Written in order. What is over the room is queued all the same: a writer that minds memory asks first.
  virtual void Write(Message message) = 0;
  // Ends the stream with `status`, of any reason, after what was written. Later calls are ignored.
  virtual void Finish(const absl::Status& status) = 0;
  // Called, on any thread, each time room appears, and once when the client has gone.
  virtual void OnChange(std::function<void()> callback) = 0;
};

}  // namespace espalier
