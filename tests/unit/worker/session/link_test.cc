#include "worker/session/link.h"

#include <thread>

#include "proto/support/errors.h"
#include "proto/support/grpc_status.h"
#include "tests/support/fake_coordinator.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::FakeCoordinator;
using testing::FakeSession;
using testing::HasReason;

// A worker that does nothing but note what comes.
class Recorder final : public LinkHandler {
 public:
  v1::Hello MakeHello() override {
    v1::Hello hello;
    hello.set_worker("w0");
    hello.set_incarnation("i");
    return hello;
  }
  v1::Heartbeat MakeHeartbeat() override {
    v1::Heartbeat beat;
    beat.set_generation(++beats_);
    return beat;
  }
  void OnWelcome(const v1::Welcome&) override { Note("welcome"); }
  void OnCommand(v1::Command command) override { Note("command " + std::to_string(command.command_id())); }
  void OnVoidGeneration(const v1::VoidGeneration& message) override { Note("void " + message.reason()); }

  void Await(const std::vector<std::string>& want) {
    MutexLock lock(mutex_);
    while (seen_.size() < want.size()) changed_.Wait(mutex_);
    EXPECT_EQ(seen_, want);
  }

 private:
  void Note(std::string what) {
    MutexLock lock(mutex_);
    seen_.push_back(std::move(what));
    changed_.SignalAll();
  }
  int64_t beats_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> seen_ ABSL_GUARDED_BY(mutex_);
};

class LinkTest : public ::testing::Test {
 protected:
  ~LinkTest() override {
    if (link_) link_->Stop();
    if (thread_.joinable()) thread_.join();
  }
  void Start(absl::Duration give_up_after = absl::InfiniteDuration()) {
    LinkOptions options;
    options.coordinator = coordinator_.address();
    options.backoff = {.initial = absl::Milliseconds(1), .factor = 1.5, .max = absl::Milliseconds(20), .jitter = 0.2};
    options.give_up_after = give_up_after;
    link_ = std::make_unique<Link>(options, recorder_);
    thread_ = std::thread([this] { status_ = link_->Run(); });
  }
  absl::Status Wait() {
    thread_.join();
    return status_;
  }

  FakeCoordinator coordinator_;
  Recorder recorder_;
  std::unique_ptr<Link> link_;
  std::thread thread_;
  absl::Status status_;
};

TEST_F(LinkTest, SaysHelloAndDeliversInOrder) {
  Start();
  const std::shared_ptr<FakeSession> session = coordinator_.Accept();
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->hello().worker(), "w0");
  v1::Command command;
  for (int64_t id : {1, 2, 3}) {
    command.set_command_id(id);
    session->Send(command);
  }
  session->Void("runs/r", 1, "lost");
  recorder_.Await({"welcome", "command 1", "command 2", "command 3", "void lost"});
}

TEST_F(LinkTest, BeatsWithoutAnybodyAsking) {
  Start();
  const std::shared_ptr<FakeSession> session = coordinator_.Accept();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(session->AwaitHeartbeat([](const v1::Heartbeat& beat) { return beat.generation() >= 3; }));
}

TEST_F(LinkTest, DialsAgainAfterABreak) {  // known-bugs 42, 66
  Start();
  for (int i = 0; i < 5; ++i) {
    const std::shared_ptr<FakeSession> session = coordinator_.Accept();
    ASSERT_NE(session, nullptr);
    session->Cut();
  }
  EXPECT_NE(coordinator_.Accept(), nullptr);
}

TEST_F(LinkTest, WaitsForACoordinatorThatIsNotThere) {  // known-bugs 39, 88
  coordinator_.Stop();
  Start();
  coordinator_.Start();
  ASSERT_NE(coordinator_.Accept(), nullptr);
  for (int i = 0; i < 3; ++i) {
    coordinator_.Stop();
    coordinator_.Start();
    ASSERT_NE(coordinator_.Accept(), nullptr);
  }
}

TEST_F(LinkTest, TriesAgainWhileItIsRefusedForAWhile) {
  coordinator_.Refuse({grpc::StatusCode::UNAVAILABLE, "draining"});
  Start();
  while (coordinator_.refused() < 3) std::this_thread::yield();
  coordinator_.Refuse(grpc::Status::OK);
  EXPECT_NE(coordinator_.Accept(), nullptr);
}

TEST_F(LinkTest, EndsWhenItIsRefusedForGood) {  // known-bugs 41
  coordinator_.Refuse(ToGrpc(MakeError(v1::ERROR_REASON_GENERATION_STALE, "replaced by a newer process")));
  Start();
  EXPECT_THAT(Wait(), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  EXPECT_EQ(coordinator_.refused(), 1);
}

TEST_F(LinkTest, GivesUpAfterAWhile) {
  coordinator_.Stop();
  Start(absl::Milliseconds(50));
  EXPECT_THAT(Wait(), HasReason(v1::ERROR_REASON_UNREACHABLE, ::testing::HasSubstr(coordinator_.address())));
}

TEST_F(LinkTest, EndsWhenDismissed) {
  Start();
  const std::shared_ptr<FakeSession> session = coordinator_.Accept();
  ASSERT_NE(session, nullptr);
  session->Dismiss("replaced");
  EXPECT_OK(Wait());
  EXPECT_TRUE(session->AwaitEnd());
}

TEST_F(LinkTest, WritesWhatWaitsBeforeItStops) {
  Start();
  const std::shared_ptr<FakeSession> session = coordinator_.Accept();
  ASSERT_NE(session, nullptr);
  for (int64_t id = 1; id <= 100; ++id) {
    v1::WorkerMessage message;
    message.mutable_ack()->set_command_id(id);
    link_->Send(std::move(message));
  }
  link_->Stop();
  EXPECT_OK(Wait());
  ASSERT_TRUE(session->AwaitEnd());
  int64_t next = 1;
  for (const v1::WorkerMessage& message : session->messages()) {
    if (message.has_ack()) {
      EXPECT_EQ(message.ack().command_id(), next++);
    }
  }
  EXPECT_EQ(next, 101);
}

TEST_F(LinkTest, IgnoresAProxy) {  // known-bugs 61
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  setenv("grpc_proxy", "http://127.0.0.1:1", 1);
  Start();
  EXPECT_NE(coordinator_.Accept(), nullptr);
  unsetenv("http_proxy");
  unsetenv("grpc_proxy");
}

}  // namespace
}  // namespace espalier
