#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "espalier/v1/worker_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/support/mutex.h"

namespace espalier::testing {

// Waits of tests give up, and fail the test, after this.
inline constexpr absl::Duration kTestPatience = absl::Seconds(20);

// One session of a worker, as the coordinator sees it. Thread-safe.
class FakeSession {
 public:
  using Stream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>;

  struct Answer {
    std::vector<v1::ResultPage> pages;
    v1::Ack ack;
    absl::Status status() const;
  };

  const v1::Hello& hello() const { return hello_; }

  // As given; set last_part yourself.
  void Send(const v1::Command& command);
  // Sends it whole and waits for its ack; nullopt, and a failed test, when none comes.
  std::optional<Answer> Run(v1::Command command);
  // Waits for the next ack of this command.
  std::optional<Answer> Await(int64_t command_id);
  void Void(const std::string& run, int64_t generation, const std::string& reason);
  void Dismiss(const std::string& reason);
  // Ends the stream as a broken connection does.
  void Cut();

  // Waits for a heartbeat that satisfies the condition, of those that come from now on.
  bool AwaitHeartbeat(const std::function<bool(const v1::Heartbeat&)>& condition);
  // Waits until the worker has ended its side.
  bool AwaitEnd();
  // All messages so far, in order.
  std::vector<v1::WorkerMessage> messages();

 private:
  friend class FakeCoordinator;
  FakeSession(grpc::ServerContext* context, Stream* stream) : context_(context), stream_(stream) {}
  void Write(const v1::CoordinatorMessage& message);
  grpc::Status Serve();
  template <typename Condition>
  bool WaitLocked(Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::ServerContext* const context_;
  Stream* const stream_;
  v1::Hello hello_;

  Mutex write_mutex_;
  // The call is over: neither context nor stream may be touched.
  bool gone_ ABSL_GUARDED_BY(write_mutex_) = false;
  Mutex mutex_;
  CondVar changed_;
  std::vector<v1::WorkerMessage> messages_ ABSL_GUARDED_BY(mutex_);
  size_t answers_taken_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// A coordinator that does what a test says: a real server on port 0 of loopback.
class FakeCoordinator final : public v1::WorkerService::Service {
 public:
  struct Upload {
    v1::UploadParameterRequest first;
    std::vector<v1::DataChunk> chunks;
    std::string bytes;
    std::string peer;
  };

  FakeCoordinator();
  ~FakeCoordinator() override;

  const std::string& address() const { return address_; }
  // Of the sessions that begin from now on.
  void SetWelcome(const v1::Welcome& welcome);
  // Sessions are refused so from now on; OK: accepted.
  void Refuse(const grpc::Status& status);
  int refused();

  // The next session that said Hello; null, and a failed test, when none comes.
  std::shared_ptr<FakeSession> Accept();
  std::optional<Upload> NextUpload();
  // Uploads are answered so.
  void AnswerUploads(const grpc::Status& status);

  // No server listens any more; Start listens on the same port again.
  void Stop();
  void Start();

  grpc::Status Session(grpc::ServerContext* context, FakeSession::Stream* stream) override;
  grpc::Status UploadParameter(grpc::ServerContext* context, grpc::ServerReader<v1::UploadParameterRequest>* reader,
                               v1::UploadParameterResponse* response) override;

 private:
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  CondVar changed_;
  v1::Welcome welcome_ ABSL_GUARDED_BY(mutex_);
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  grpc::Status upload_answer_ ABSL_GUARDED_BY(mutex_);
  int refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<FakeSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::deque<Upload> uploads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier::testing
