#include "server/fleet/worker_registry.h"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/uuid.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using testing::FakeClock;
using testing::HasReason;
using ::testing::IsEmpty;

struct RecordingLink : SessionLink {
  void Send(const v1::CoordinatorMessage& message) override { sent.push_back(message); }
  void Close(const absl::Status& status) override { closed = status; }
  std::vector<int64_t> Commands() const {
    std::vector<int64_t> ids;
    for (const auto& message : sent) {
      if (message.has_command()) ids.push_back(message.command().command_id());
    }
    return ids;
  }
  std::vector<v1::CoordinatorMessage> sent;
  std::optional<absl::Status> closed;
};

struct RecordingListener : FleetListener {
  void OnIdle() override { ++idle; }
  void OnSuspect(const std::string& worker, const std::string&) override { suspect.push_back(worker); }
  void OnLost(const std::string& worker, const std::string& reason) override { lost.push_back(worker + ": " + reason); }
  int idle = 0;
  std::vector<std::string> suspect, lost;
};

class WorkerRegistryTest : public ::testing::Test {
 protected:
  struct Peer {
    std::shared_ptr<RecordingLink> link = std::make_shared<RecordingLink>();
    WorkerRegistry::SessionId session = 0;
  };

  WorkerRegistryTest() { registry_.SetListener(&listener_); }

  v1::WorkerMessage Hello(const std::string& worker, const std::string& incarnation, const std::string& holds = "") {
    v1::WorkerMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_kind(v1::WORKER_KIND_CHECKPOINT);
    hello.set_worker(worker);
    hello.set_incarnation(incarnation);
    hello.set_protocol_version(1);
    hello.set_run(holds);
    hello.set_generation(holds.empty() ? 0 : 1);
    return message;
  }

  Peer Connect(const v1::WorkerMessage& hello) {
    Peer peer;
    peer.session = registry_.Open(peer.link);
    registry_.Receive(peer.session, hello);
    return peer;
  }

  std::vector<std::string> IdleNames() const {
    std::vector<std::string> names;
    for (const IdleWorker& idle : registry_.Idle()) names.push_back(idle.name);
    return names;
  }

  v1::Worker Worker(const std::string& name) {
    for (const v1::Worker& worker : registry_.List()) {
      if (worker.name() == "workers/" + name) return worker;
    }
    return {};
  }

  CommandHandler Record() {
    CommandHandler handler;
    handler.done = [this](const absl::StatusOr<v1::Ack>& ack) { done_.push_back(ack.status()); };
    handler.page = [this](const v1::ResultPage&) { ++pages_; };
    return handler;
  }

  v1::WorkerMessage Ack(int64_t command_id, int64_t generation) {
    v1::WorkerMessage message;
    message.mutable_ack()->set_command_id(command_id);
    message.mutable_ack()->set_generation(generation);
    return message;
  }

  v1::Command LoadModel() {
    v1::Command command;
    command.set_run("runs/a");
    command.set_generation(1);
    command.mutable_load_model();
    return command;
  }

  FakeClock clock_;
  RecordingListener listener_;
  WorkerRegistry registry_{{.lease = absl::Seconds(15), .heartbeat_interval = absl::Seconds(1)}, clock_, "instance"};
  std::vector<absl::Status> done_;
  int pages_ = 0;
};

TEST_F(WorkerRegistryTest, WelcomesWithItsInstanceLeaseAndInterval) {
  const Peer peer = Connect(Hello("w0", NewUuid()));
  ASSERT_EQ(peer.link->sent.size(), 1u);
  const v1::Welcome& welcome = peer.link->sent[0].welcome();
  EXPECT_EQ(welcome.instance_id(), "instance");
  EXPECT_EQ(welcome.lease().seconds(), 15);
  EXPECT_EQ(welcome.heartbeat_interval().seconds(), 1);
  EXPECT_THAT(IdleNames(), ElementsAre("w0"));
  EXPECT_EQ(listener_.idle, 1);
}

TEST_F(WorkerRegistryTest, RefusesBadHellos) {
  v1::WorkerMessage version = Hello("w0", NewUuid());
  version.mutable_hello()->set_protocol_version(2);
  EXPECT_THAT(*Connect(version).link->closed, HasReason(v1::ERROR_REASON_WORKER_KIND));
  EXPECT_THAT(*Connect(Hello("W 0", NewUuid())).link->closed, HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  EXPECT_THAT(*Connect(Hello("w0", "me")).link->closed, HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  v1::WorkerMessage attached = Hello("w0", NewUuid());
  attached.mutable_hello()->set_kind(v1::WORKER_KIND_ATTACHED);
  EXPECT_THAT(*Connect(attached).link->closed, HasReason(v1::ERROR_REASON_WORKER_KIND));
  EXPECT_THAT(*Connect(Ack(1, 1)).link->closed, HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  EXPECT_THAT(registry_.List(), IsEmpty());
}

TEST_F(WorkerRegistryTest, ANewIncarnationReplacesTheOldOne) {
  const Peer old = Connect(Hello("w0", NewUuid()));
  registry_.Claim("w0", "runs/a", 0);
  const int64_t id = registry_.SendCommand("w0", {LoadModel()}, Record());
  const Peer fresh = Connect(Hello("w0", NewUuid()));
  EXPECT_TRUE(old.link->sent.back().has_dismiss());
  EXPECT_TRUE(old.link->closed.has_value());
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_THAT(done_[0], HasReason(v1::ERROR_REASON_WORKER_LOST));
  EXPECT_THAT(listener_.lost, ElementsAre("w0: replaced by a new incarnation"));
  EXPECT_THAT(fresh.link->Commands(), IsEmpty());
  EXPECT_THAT(IdleNames(), ElementsAre("w0"));
  // A late answer of the old one changes nothing, whichever stream it takes.
  registry_.Receive(old.session, Ack(id, 1));
  registry_.Receive(fresh.session, Ack(id, 1));
  EXPECT_EQ(done_.size(), 1u);
  EXPECT_EQ(Worker("w0").refused_messages(), 1);
}

TEST_F(WorkerRegistryTest, AReplacedIncarnationThatComesBackIsRefusedAndCounted) {
  const v1::WorkerMessage first = Hello("w0", NewUuid());
  Connect(first);
  const v1::WorkerMessage second = Hello("w0", NewUuid());
  Connect(second);
  const Peer back = Connect(first);
  EXPECT_THAT(*back.link->closed, HasReason(v1::ERROR_REASON_GENERATION_STALE));
  EXPECT_EQ(Worker("w0").incarnation(), second.hello().incarnation());
  EXPECT_EQ(Worker("w0").refused_messages(), 1);
}

TEST_F(WorkerRegistryTest, ABlipCostsNothing) {  // known-bugs 66
  const v1::WorkerMessage hello = Hello("w0", NewUuid());
  const Peer first = Connect(hello);
  registry_.Claim("w0", "runs/a", 0);
  const int64_t a = registry_.SendCommand("w0", {LoadModel()}, Record());
  registry_.Closed(first.session);
  EXPECT_EQ(Worker("w0").state(), v1::Worker::STATE_SUSPECT);
  EXPECT_THAT(listener_.suspect, ElementsAre("w0"));
  const int64_t b = registry_.SendCommand("w0", {LoadModel()}, Record());
  clock_.Advance(absl::Seconds(14));
  v1::WorkerMessage again = hello;
  again.mutable_hello()->set_run("runs/a");
  again.mutable_hello()->set_generation(1);
  const Peer second = Connect(again);
  EXPECT_THAT(second.link->Commands(), ElementsAre(a, b));
  EXPECT_EQ(Worker("w0").state(), v1::Worker::STATE_BUSY);
  EXPECT_EQ(registry_.List().size(), 1u);
  registry_.Receive(second.session, Ack(a, 1));
  registry_.Receive(second.session, Ack(a, 1));  // known-bugs 65: the second answer counts for nothing
  EXPECT_EQ(done_.size(), 1u);
  EXPECT_EQ(Worker("w0").refused_messages(), 1);
  EXPECT_THAT(listener_.lost, IsEmpty());
}

TEST_F(WorkerRegistryTest, ASilentWorkerIsLostAtTheLease) {  // known-bugs 56
  const Peer peer = Connect(Hello("w0", NewUuid()));
  registry_.Claim("w0", "runs/a", 3);
  registry_.SendCommand("w0", {LoadModel()}, Record());
  clock_.Advance(absl::Seconds(15) - absl::Milliseconds(1));
  registry_.Tick();
  EXPECT_THAT(listener_.suspect, ElementsAre("w0"));
  EXPECT_THAT(listener_.lost, IsEmpty());
  clock_.Advance(absl::Milliseconds(1));
  registry_.Tick();
  EXPECT_EQ(listener_.lost.size(), 1u);
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_THAT(done_[0], HasReason(v1::ERROR_REASON_WORKER_LOST));
  EXPECT_TRUE(peer.link->closed.has_value());
  EXPECT_EQ(Worker("w0").state(), v1::Worker::STATE_LOST);
  EXPECT_EQ(registry_.SendCommand("w0", {LoadModel()}, Record()), 0);
}

TEST_F(WorkerRegistryTest, AWallClockThatJumpsLosesNobody) {
  Connect(Hello("w0", NewUuid()));
  clock_.JumpWall(absl::Hours(48));
  registry_.Tick();
  clock_.JumpWall(-absl::Hours(96));
  registry_.Tick();
  EXPECT_THAT(IdleNames(), ElementsAre("w0"));
}

TEST_F(WorkerRegistryTest, ALostWorkerThatComesBackLetsGoOfWhatItHolds) {
  const v1::WorkerMessage hello = Hello("w0", NewUuid());
  Connect(hello);
  registry_.Claim("w0", "runs/a", 0);
  clock_.Advance(absl::Seconds(20));
  registry_.Tick();
  v1::WorkerMessage again = hello;
  again.mutable_hello()->set_run("runs/a");
  again.mutable_hello()->set_generation(1);
  const Peer peer = Connect(again);
  ASSERT_EQ(peer.link->sent.size(), 3u);
  EXPECT_EQ(peer.link->sent[1].void_generation().run(), "runs/a");
  ASSERT_TRUE(peer.link->sent[2].command().has_leave_group());
  EXPECT_THAT(IdleNames(), IsEmpty());
  registry_.Receive(peer.session, Ack(peer.link->sent[2].command().command_id(), 1));
  EXPECT_THAT(IdleNames(), ElementsAre("w0"));
}

TEST_F(WorkerRegistryTest, AnAckOfAnotherGenerationIsRefused) {
  const Peer peer = Connect(Hello("w0", NewUuid()));
  const int64_t id = registry_.SendCommand("w0", {LoadModel()}, Record());
  registry_.Receive(peer.session, Ack(id, 7));
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_EQ(Worker("w0").refused_messages(), 1);
}

TEST_F(WorkerRegistryTest, ForgottenCommandsAnswerNobody) {
  const Peer peer = Connect(Hello("w0", NewUuid()));
  const int64_t id = registry_.SendCommand("w0", {LoadModel()}, Record());
  registry_.Forget("w0", id);
  registry_.Receive(peer.session, Ack(id, 1));
  EXPECT_THAT(done_, IsEmpty());
}

TEST_F(WorkerRegistryTest, AReleaseOfAnotherRunChangesNothing) {
  Connect(Hello("w0", NewUuid()));
  registry_.Claim("w0", "runs/b", 0);
  registry_.Release("w0", "runs/a");
  EXPECT_THAT(IdleNames(), IsEmpty());
  registry_.Release("w0", "runs/b");
  EXPECT_THAT(IdleNames(), ElementsAre("w0"));
}

TEST_F(WorkerRegistryTest, PartsCarryOneIdAndTheLastIsMarked) {
  const Peer peer = Connect(Hello("w0", NewUuid()));
  const int64_t id = registry_.SendCommand("w0", {LoadModel(), LoadModel(), LoadModel()}, Record());
  EXPECT_THAT(peer.link->Commands(), ElementsAre(id, id, id));
  EXPECT_FALSE(peer.link->sent[2].command().last_part());
  EXPECT_TRUE(peer.link->sent[3].command().last_part());
}

TEST_F(WorkerRegistryTest, HeartbeatsTellWhatAWorkerDoes) {
  const Peer peer = Connect(Hello("w0", NewUuid()));
  v1::WorkerMessage beat;
  beat.mutable_heartbeat()->set_operation("UpdateMasks");
  beat.mutable_heartbeat()->set_in_collective(true);
  beat.mutable_heartbeat()->set_collective_sequence(17);
  registry_.Receive(peer.session, beat);
  EXPECT_EQ(Worker("w0").activity(), "UpdateMasks: waiting in collective 17");
}

TEST_F(WorkerRegistryTest, ManyWorkersRegister) {  // known-bugs 60
  for (int i = 0; i < 65; ++i) Connect(Hello("w" + std::to_string(i), NewUuid()));
  EXPECT_EQ(registry_.Idle().size(), 65u);
}

TEST_F(WorkerRegistryTest, AfterShutdownStreamsAreRefused) {
  const Peer peer = Connect(Hello("w0", NewUuid()));
  registry_.Shutdown(MakeError(v1::ERROR_REASON_DRAINING, "bye"));
  EXPECT_THAT(*peer.link->closed, HasReason(v1::ERROR_REASON_DRAINING));
  EXPECT_THAT(*Connect(Hello("w1", NewUuid())).link->closed, HasReason(v1::ERROR_REASON_DRAINING));
}

}  // namespace
}  // namespace espalier
