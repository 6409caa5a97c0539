#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "proto/support/mutex.h"

namespace espalier {

// Ends a client call from another thread. Thread-safe; once cancelled it stays so.
class Cancellation {
 public:
  void Cancel();
  bool cancelled() const;
  // Sleeps; false at once when cancelled.
  bool Sleep(absl::Duration duration);

  // Cancel reaches `context` while this object lives. For the implementation of calls.
  class Scope {
   public:
    // `cancellation` may be null.
    Scope(Cancellation* cancellation, grpc::ClientContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Cancellation* const cancellation_;
  };

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace espalier
