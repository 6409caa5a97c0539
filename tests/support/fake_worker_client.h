#pragma once

#include <memory>
#include <string>
#include <thread>

#include "espalier/v1/worker_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/support/mutex.h"
#include "tests/support/fake_worker.h"

namespace espalier::testing {

// A fake worker at the other end of a real connection: one session, served by a thread, and uploads of what a parameter
// is said to hold. Scripts are called on that thread.
class FakeWorkerClient {
 public:
  FakeWorkerClient(const std::string& address, FakeWorker worker);
  // Ends the session.
  ~FakeWorkerClient();

  // Waits until the stream has ended, and answers with what.
  grpc::Status Wait();
  // The connection breaks.
  void Break() { context_.TryCancel(); }
  // Of the last upload.
  grpc::Status upload_status() {
    MutexLock lock(mutex_);
    return upload_status_;
  }

 private:
  void Serve();
  grpc::Status Upload(const v1::Command& command);

  FakeWorker worker_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
  Mutex mutex_;
  grpc::Status upload_status_ ABSL_GUARDED_BY(mutex_);
  grpc::Status status_;
  std::thread thread_;
};

}  // namespace espalier::testing
