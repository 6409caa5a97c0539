#include "tests/support/fake_coordinator.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "proto/support/errors.h"

namespace espalier::testing {
namespace {

// Waits under `mutex` for a condition, for as long as tests have patience.
template <typename Condition>
bool Await(CondVar& changed, Mutex& mutex, Condition condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const absl::Time until = absl::Now() + kTestPatience;
  while (!condition()) {
    const absl::Duration left = until - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed.WaitFor(mutex, absl::ToChronoNanoseconds(left));
  }
  return true;
}

}  // namespace

absl::Status FakeSession::Answer::status() const {
  return FromProto(ack.status());
}

template <typename Condition>
bool FakeSession::WaitLocked(Condition condition) {
  const bool came = testing::Await(changed_, mutex_, condition);
  EXPECT_TRUE(came) << "nothing came from worker " << hello_.worker();
  return came;
}

void FakeSession::Write(const v1::CoordinatorMessage& message) {
  MutexLock lock(write_mutex_);
  if (!gone_) stream_->Write(message);
}

void FakeSession::Send(const v1::Command& command) {
  v1::CoordinatorMessage message;
  *message.mutable_command() = command;
  Write(message);
}

std::optional<FakeSession::Answer> FakeSession::Run(v1::Command command) {
  command.set_last_part(true);
  Send(command);
  return Await(command.command_id());
}

std::optional<FakeSession::Answer> FakeSession::Await(int64_t command_id) {
  MutexLock lock(mutex_);
  Answer answer;
  const bool came = WaitLocked([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (; answers_taken_ < messages_.size(); ++answers_taken_) {
      const v1::WorkerMessage& message = messages_[answers_taken_];
      if (message.has_page() && message.page().command_id() == command_id) answer.pages.push_back(message.page());
      if (message.has_ack() && message.ack().command_id() == command_id) {
        answer.ack = message.ack();
        ++answers_taken_;
        return true;
      }
    }
    return false;
  });
  if (!came) return std::nullopt;
  return answer;
}

void FakeSession::Void(const std::string& run, int64_t generation, const std::string& reason) {
  v1::CoordinatorMessage message;
  message.mutable_void_generation()->set_run(run);
  message.mutable_void_generation()->set_generation(generation);
  message.mutable_void_generation()->set_reason(reason);
  Write(message);
}

void FakeSession::Dismiss(const std::string& reason) {
  v1::CoordinatorMessage message;
  message.mutable_dismiss()->set_reason(reason);
  Write(message);
}

void FakeSession::Cut() {
  MutexLock lock(write_mutex_);
  if (!gone_) context_->TryCancel();
}

bool FakeSession::AwaitHeartbeat(const std::function<bool(const v1::Heartbeat&)>& condition) {
  MutexLock lock(mutex_);
  size_t next = messages_.size();
  return WaitLocked([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (; next < messages_.size(); ++next) {
      if (messages_[next].has_heartbeat() && condition(messages_[next].heartbeat())) return true;
    }
    return false;
  });
}

bool FakeSession::AwaitEnd() {
  MutexLock lock(mutex_);
  return WaitLocked([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ended_; });
}

std::vector<v1::WorkerMessage> FakeSession::messages() {
  MutexLock lock(mutex_);
  return messages_;
}

grpc::Status FakeSession::Serve() {
  v1::WorkerMessage message;
  while (stream_->Read(&message)) {
    MutexLock lock(mutex_);
    messages_.push_back(message);
    changed_.SignalAll();
  }
  {
    MutexLock lock(write_mutex_);
    gone_ = true;
  }
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.SignalAll();
  return grpc::Status::OK;
}

FakeCoordinator::FakeCoordinator() {
  welcome_.set_instance_id("first");
  welcome_.mutable_heartbeat_interval()->set_nanos(20'000'000);
  welcome_.mutable_lease()->set_seconds(15);
  Start();
}

FakeCoordinator::~FakeCoordinator() {
  Stop();
}

void FakeCoordinator::Start() {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address_.empty() ? "127.0.0.1:0" : address_, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    ADD_FAILURE() << "cannot listen on " << address_;
    return;
  }
  address_ = absl::StrCat("127.0.0.1:", port);
}

void FakeCoordinator::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_ = nullptr;
}

void FakeCoordinator::SetWelcome(const v1::Welcome& welcome) {
  MutexLock lock(mutex_);
  welcome_ = welcome;
}

void FakeCoordinator::Refuse(const grpc::Status& status) {
  MutexLock lock(mutex_);
  refusal_ = status;
}

int FakeCoordinator::refused() {
  MutexLock lock(mutex_);
  return refused_;
}

std::shared_ptr<FakeSession> FakeCoordinator::Accept() {
  MutexLock lock(mutex_);
  if (!testing::Await(changed_, mutex_, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !sessions_.empty(); })) {
    ADD_FAILURE() << "no worker said Hello";
    return nullptr;
  }
  std::shared_ptr<FakeSession> session = sessions_.front();
  sessions_.pop_front();
  return session;
}

std::optional<FakeCoordinator::Upload> FakeCoordinator::NextUpload() {
  MutexLock lock(mutex_);
  if (!testing::Await(changed_, mutex_, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !uploads_.empty(); })) {
    ADD_FAILURE() << "no upload came";
    return std::nullopt;
  }
  Upload upload = std::move(uploads_.front());
  uploads_.pop_front();
  return upload;
}

void FakeCoordinator::AnswerUploads(const grpc::Status& status) {
  MutexLock lock(mutex_);
  upload_answer_ = status;
}

grpc::Status FakeCoordinator::Session(grpc::ServerContext* context, FakeSession::Stream* stream) {
  v1::Welcome welcome;
  {
    MutexLock lock(mutex_);
    if (!refusal_.ok()) {
      ++refused_;
      changed_.SignalAll();
      return refusal_;
    }
    welcome = welcome_;
  }
  v1::WorkerMessage hello;
  if (!stream->Read(&hello) || !hello.has_hello()) return {grpc::StatusCode::INVALID_ARGUMENT, "no Hello"};
  std::shared_ptr<FakeSession> session(new FakeSession(context, stream));
  session->hello_ = hello.hello();
  {
    // The Welcome is written before the test may write.
    MutexLock write_lock(session->write_mutex_);
    v1::CoordinatorMessage answer;
    *answer.mutable_welcome() = welcome;
    stream->Write(answer);
  }
  {
    MutexLock lock(mutex_);
    sessions_.push_back(session);
    changed_.SignalAll();
  }
  return session->Serve();
}

grpc::Status FakeCoordinator::UploadParameter(grpc::ServerContext* context,
                                              grpc::ServerReader<v1::UploadParameterRequest>* reader,
                                              v1::UploadParameterResponse*) {
  grpc::Status answer;
  {
    MutexLock lock(mutex_);
    answer = upload_answer_;
  }
  if (!answer.ok()) return answer;
  Upload upload;
  upload.peer = context->peer();
  if (!reader->Read(&upload.first)) return {grpc::StatusCode::INVALID_ARGUMENT, "no header"};
  v1::UploadParameterRequest next;
  while (reader->Read(&next)) {
    upload.bytes += next.chunk().data();
    upload.chunks.push_back(next.chunk());
  }
  MutexLock lock(mutex_);
  uploads_.push_back(std::move(upload));
  changed_.SignalAll();
  return grpc::Status::OK;
}

}  // namespace espalier::testing
