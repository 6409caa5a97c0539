#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"
#include "proto/support/uuid.h"
#include "server/run/coordinator.h"
#include "server/run/event_loop.h"
#include "server/store/journal.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_worker.h"

namespace espalier::testing {

// Keeps what a stream was given; room as the test says.
template <typename Message>
class RecordingSink : public StreamSink<Message> {
 public:
  size_t Room() const override { return closed_ ? 0 : room - std::min(room, messages.size()); }
  bool Closed() const override { return closed_; }
  void Write(Message message) override { messages.push_back(std::move(message)); }
  void Finish(const absl::Status& with) override {
    if (closed_) return;
    closed_ = true;
    status = with;
  }
  void OnChange(std::function<void()> callback) override { on_change = std::move(callback); }
  void GiveRoom(size_t more) {
    room += more;
    if (on_change) on_change();
  }
  // The client goes away.
  void Abandon() {
    closed_ = true;
    if (on_change) on_change();
  }

  std::vector<Message> messages;
  std::optional<absl::Status> status;
  std::function<void()> on_change;
  size_t room = size_t{1} << 30;

 private:
  bool closed_ = false;
};

class RecordingChunks : public ChunkSink {
 public:
  bool HasRoom() const override { return room > chunks.size(); }
  bool Closed() const override { return closed; }
  void WriteHeader(const v1::ParameterHeader& h) override { header = h; }
  void WriteChunk(v1::DataChunk chunk) override { chunks.push_back(std::move(chunk)); }
  void Finish(const absl::Status& with) override {
    if (!status) status = with;
    closed = true;
  }
  void OnChange(std::function<void()> callback) override { on_change = std::move(callback); }

  v1::ParameterHeader header;
  std::vector<v1::DataChunk> chunks;
  std::optional<absl::Status> status;
  std::function<void()> on_change;
  size_t room = 1000;
  bool closed = false;
};

// A journal that can be told to fail, and outlives coordinators.
class ShakyJournal : public Journal {
 public:
  std::vector<JournalRecord> Read() const override { return inner_->Read(); }
  absl::Status Append(absl::Span<const JournalRecord> records) override {
    if (failing) return MakeError(v1::ERROR_REASON_STORAGE_UNWRITABLE, "disk full", {{"path", "journal"}});
    return inner_->Append(records);
  }
  int64_t writes() const override { return inner_->writes(); }

  bool failing = false;

 private:
  std::unique_ptr<Journal> inner_ = NewMemoryJournal();
};

// A coordinator and fake workers in one thread, moved by hand.
class Cluster {
 public:
  struct Link : SessionLink {
    void Send(const v1::CoordinatorMessage& message) override { sent.push_back(message); }
    void Close(const absl::Status& status) override { closed = status; }
    std::deque<v1::CoordinatorMessage> sent;
    std::optional<absl::Status> closed;
  };
  struct Node {
    explicit Node(FakeWorker w) : worker(std::move(w)) {}
    FakeWorker worker;
    std::shared_ptr<Link> link;
    WorkerRegistry::SessionId session = 0;
    bool stopped = false;  // SIGSTOP: neither reads nor answers nor beats
    // Answers wait here while `mute`: heartbeats go on.
    bool mute = false;
    FakeWorker::Messages held;
  };

  explicit Cluster(const std::vector<std::string>& parameters = {"a.weight", "b.weight", "c.weight"})
      : model(FakeModel(parameters)) {
    options.lease = {.lease = absl::Seconds(15), .heartbeat_interval = absl::Seconds(1)};
    Boot();
  }

  void Boot() {
    coordinator.reset();
    coordinator = std::make_unique<Coordinator>(loop, journal, options);
    const absl::Status status = coordinator->Load();
    ASSERT_TRUE(status.ok()) << status;
    loop.RunUntilIdle();
  }

  // kill -9 of the coordinator, and its next start; workers dial again.
  void Restart() {
    Boot();
    for (auto& [name, node] : nodes) {
      if (!node->stopped) Connect(name);
    }
    Pump();
  }

  void AddWorkers(int count) {
    for (int i = 0; i < count; ++i) {
      const std::string name = "w" + std::to_string(i);
      nodes[name] = std::make_unique<Node>(FakeWorker(name, model));
      Connect(name);
    }
    Pump();
  }

  FakeWorker& worker(const std::string& name) { return nodes.at(name)->worker; }

  void Connect(const std::string& name) {
    Node& node = *nodes.at(name);
    node.link = std::make_shared<Link>();
    node.session = coordinator->registry().Open(node.link);
    coordinator->registry().Receive(node.session, node.worker.Hello());
  }

  // The stream breaks, as after kill -9.
  void Kill(const std::string& name) {
    Node& node = *nodes.at(name);
    node.stopped = true;
    coordinator->registry().Closed(node.session);
    Pump();
  }
  void Stop(const std::string& name) { nodes.at(name)->stopped = true; }
  // A new process of the same name.
  void Respawn(const std::string& name) {
    Node& node = *nodes.at(name);
    node.worker.Restart();
    node.worker.Clear();
    node.stopped = node.mute = false;
    Connect(name);
    Pump();
  }

  // Everything that can happen without time passing.
  void Pump() {
    bool moved = true;
    while (moved) {
      moved = false;
      loop.RunUntilIdle();
      for (auto& [name, node] : nodes) {
        if (node->stopped || node->link == nullptr) continue;
        if (node->link->closed && node->link->sent.empty()) {
          node->link = nullptr;
          coordinator->registry().Closed(node->session);
          continue;
        }
        while (!node->link->sent.empty() && !node->stopped) {
          const v1::CoordinatorMessage message = node->link->sent.front();
          node->link->sent.pop_front();
          moved = true;
          for (v1::WorkerMessage& answer : node->worker.Take(message)) Deliver(*node, std::move(answer));
        }
      }
    }
  }

  void Deliver(Node& node, v1::WorkerMessage message) {
    if (node.mute) {
      node.held.push_back(std::move(message));
    } else {
      coordinator->registry().Receive(node.session, message);
    }
  }

  void Unmute(const std::string& name) {
    Node& node = *nodes.at(name);
    node.mute = false;
    for (v1::WorkerMessage& message : std::exchange(node.held, {})) Deliver(node, std::move(message));
    Pump();
  }

  // Time passes in steps; whoever lives beats.
  void Advance(absl::Duration by) {
    constexpr absl::Duration kStep = absl::Milliseconds(250);
    for (absl::Duration done; done < by; done += kStep) {
      clock.Advance(std::min(kStep, by - done));
      for (auto& [name, node] : nodes) {
        if (!node->stopped && node->link != nullptr) {
          coordinator->registry().Receive(node->session, node->worker.Heartbeat());
        }
      }
      Pump();
    }
  }

  // One unary RPC; fails the test when no answer comes.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(void (Coordinator::*method)(const Request&, Reply<Response>), const Request& request) {
    std::optional<absl::StatusOr<Response>> answer;
    ((*coordinator).*method)(request, [&](absl::StatusOr<Response> a) {
      EXPECT_FALSE(answer.has_value()) << "answered twice";
      answer = std::move(a);
    });
    Pump();
    EXPECT_TRUE(answer.has_value()) << "not answered";
    return answer ? *answer : absl::InternalError("not answered");
  }

  v1::RunSpec Spec(int world_size, const std::string& extra = "") const {
    v1::RunSpec spec;
    spec.set_recipe(R"(
prune_stage:
  run_type: oneshot
  pruning_modifiers:
    - MagnitudePruningModifier: {targets: ["a.weight", "b.weight"], final_sparsity: 0.5}
)" + extra);
    spec.set_recipe_name("half.yaml");
    spec.set_model_path("/models/tiny");
    spec.set_world_size(world_size);
    return spec;
  }

  // A run, as far as it goes without time passing.
  std::string Create(const v1::RunSpec& spec) {
    v1::CreateRunRequest request;
    *request.mutable_spec() = spec;
    const auto answer = Call(&Coordinator::CreateRun, request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? answer->run().name() : "";
  }
  std::string CreateHeld(int world_size) {
    v1::RunSpec spec = Spec(world_size);
    spec.set_hold(true);
    return Create(spec);
  }

  v1::Run Get(const std::string& name) {
    v1::GetRunRequest request;
    request.set_name(name);
    const auto answer = Call(&Coordinator::GetRun, request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : v1::Run();
  }

  v1::Worker GetWorker(const std::string& name) {
    for (const v1::Worker& worker : coordinator->registry().List()) {
      if (worker.name() == "workers/" + name) return worker;
    }
    return {};
  }

  // All events of a run that are kept.
  std::vector<v1::RunEvent> Events(const std::string& name) {
    auto sink = std::make_shared<RecordingSink<v1::RunEvent>>();
    v1::WatchRunRequest request;
    request.set_name(name);
    request.set_resume_revision(1);
    coordinator->WatchRun(request, sink);
    std::vector<v1::RunEvent> events = sink->messages;
    sink->Abandon();
    Pump();
    return events;
  }

  FakeClock clock;
  EventLoop loop{clock};
  ShakyJournal journal;
  CoordinatorOptions options;
  v1::ModelDescription model;
  std::unique_ptr<Coordinator> coordinator;
  std::map<std::string, std::unique_ptr<Node>> nodes;
};

}  // namespace espalier::testing
