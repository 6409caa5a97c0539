#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "espalier/v1/resources.pb.h"
#include "proto/support/mutex.h"

namespace espalier {

// Where a parameter's header and chunks go: a client's ReadParameter or ReadMask. As StreamSink, thread-safe and bounded.
class ChunkSink {
 public:
  virtual ~ChunkSink() = default;
  virtual bool HasRoom() const = 0;
  virtual bool Closed() const = 0;
  virtual void WriteHeader(const v1::ParameterHeader& header) = 0;
  virtual void WriteChunk(v1::DataChunk chunk) = 0;
  virtual void Finish(const absl::Status& status) = 0;
  virtual void OnChange(std::function<void()> callback) = 0;
};

// Carries one upload of a worker to the client that asked for it, at the client's speed and with nothing stored: the
// upload reads on only when the client has taken what came before. Checks what passes: order, checksums, sizes, and that
// it is of the generation and mask version that the run has committed. Held by shared_ptr. Thread-safe.
class UploadRelay : public std::enable_shared_from_this<UploadRelay> {
 public:
  // `ended` is called once, on any thread: when all data has passed, or with why it never will.
  UploadRelay(int64_t generation, int64_t mask_version, std::shared_ptr<ChunkSink> sink,
              std::function<void(const absl::Status&)> ended);

  // The upload's side. An error ends the upload with it: GENERATION_STALE, INVARIANT (what, where), OPERATION_NOT_FOUND
  // when nobody waits any more.
  absl::Status Begin(const v1::ParameterHeader& header);
  absl::Status Accept(v1::DataChunk chunk);
  absl::Status Complete();
  // The upload broke off.
  void Break(const absl::Status& status);
  // Calls `callback` once, now or on another thread, when the next chunk may come or never will.
  void WhenRoom(std::function<void()> callback);

  // The run's side: ends the client's stream; the upload finds nobody waiting. Later calls are ignored.
  void Finish(const absl::Status& status);

  // Grows with everything that passed.
  int64_t passed() const;

 private:
  absl::Status Gone() const;
  void End(const absl::Status& status);
  void Wake();

  const int64_t generation_;
  const int64_t mask_version_;
  const std::shared_ptr<ChunkSink> sink_;

  mutable Mutex mutex_;
  std::function<void(const absl::Status&)> ended_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> waiting_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  v1::ParameterHeader header_ ABSL_GUARDED_BY(mutex_);
  int64_t chunks_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
