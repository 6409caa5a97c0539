// Requests, idempotency, watching and restarts.

#include "server/run/coordinator.h"

#include <functional>
#include <map>
#include <set>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/run/cluster.h"

namespace espalier {
namespace {

using testing::Cluster;
using ::testing::ElementsAre;
using testing::FakeWorker;
using testing::HasReason;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::RecordingSink;

using EventSink = RecordingSink<v1::RunEvent>;

v1::CreateRunRequest Request(const v1::RunSpec& spec, const std::string& id = "") {
  v1::CreateRunRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(id);
  return request;
}

// --- creating

TEST(CreateRunTest, ValidateOnlyPlansAndMakesNothing) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const int64_t writes = cluster.journal.writes();
  v1::CreateRunRequest request = Request(cluster.Spec(4));
  request.set_validate_only(true);
  const auto answer = cluster.Call(&Coordinator::CreateRun, request);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->run().name(), "");
  EXPECT_EQ(answer->run().plan().pruned_parameters(), 2);
  EXPECT_EQ(answer->run().updates_total(), 1);
  EXPECT_EQ(cluster.journal.writes(), writes);
  EXPECT_EQ(cluster.Call(&Coordinator::ListRuns, v1::ListRunsRequest())->runs_size(), 0);
}

TEST(CreateRunTest, WithoutAnyWorkerNothingCanBePlanned) {
  Cluster cluster;
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(cluster.Spec(1))),
              HasReason(v1::ERROR_REASON_WORKERS_MISSING));
}

TEST(CreateRunTest, ARunThatMayNotWaitNeedsItsWorkersNow) {
  Cluster cluster;
  cluster.AddWorkers(2);
  v1::CreateRunRequest request = Request(cluster.Spec(3));
  request.set_wait_for_workers(false);
  const auto answer = cluster.Call(&Coordinator::CreateRun, request);
  EXPECT_THAT(answer, HasReason(v1::ERROR_REASON_WORKERS_MISSING));
  EXPECT_EQ(MetadataOf(answer.status(), "have"), "2");
  EXPECT_EQ(MetadataOf(answer.status(), "need"), "3");
}

TEST(CreateRunTest, ABusyWorkerStillDescribesModels) {
  Cluster cluster;
  cluster.AddWorkers(1);
  cluster.CreateHeld(1);
  const std::string second = cluster.CreateHeld(1);
  EXPECT_EQ(cluster.Get(second).state(), v1::Run::STATE_QUEUED);
}

TEST(CreateRunTest, BadRequestsNameTheField) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::map<std::string, std::function<void(v1::RunSpec&)>> cases = {
      {"spec.recipe", [](v1::RunSpec& s) { s.clear_recipe(); }},
      {"spec.then[1].recipe",
       [](v1::RunSpec& s) {
         s.add_then()->set_recipe(s.recipe());
         s.add_then()->set_recipe_name("empty.yaml");
       }},
      {"spec.then[0].recipe_name",
       [](v1::RunSpec& s) {
         s.add_then()->set_recipe(s.recipe());
         s.mutable_then(0)->set_recipe_name(std::string(5000, 'n'));
       }},
      {"spec.then",
       [](v1::RunSpec& s) {
         for (int i = 0; i < 64; ++i) s.add_then()->set_recipe(s.recipe());
       }},
      {"spec.model_path", [](v1::RunSpec& s) { s.clear_model_path(); }},
      {"spec.model_path ", [](v1::RunSpec& s) { s.set_model_path("relative/model"); }},
      {"spec.output_path", [](v1::RunSpec& s) { s.set_output_path(std::string("/a\0b", 4)); }},
      {"spec.world_size", [](v1::RunSpec& s) { s.set_world_size(1025); }},
      {"spec.world_size ", [](v1::RunSpec& s) { s.set_world_size(-1); }},
      {"spec.hold_timeout", [](v1::RunSpec& s) { s.mutable_hold_timeout()->set_seconds(5); }},
      {"spec.hold_timeout ",
       [](v1::RunSpec& s) {
         s.set_hold(true);
         s.mutable_hold_timeout()->set_seconds(-5);
       }},
      {"spec.max_shard_bytes", [](v1::RunSpec& s) { s.set_max_shard_bytes(-1); }},
      {"spec.output_format", [](v1::RunSpec& s) { s.set_output_format(static_cast<v1::CheckpointFormat>(99)); }},
      {"spec.worker_kind", [](v1::RunSpec& s) { s.set_worker_kind(static_cast<v1::WorkerKind>(99)); }},
  };
  for (const auto& [field, change] : cases) {
    v1::RunSpec spec = cluster.Spec(1);
    change(spec);
    const auto answer = cluster.Call(&Coordinator::CreateRun, Request(spec));
    EXPECT_THAT(answer, HasReason(v1::ERROR_REASON_REQUEST_INVALID)) << field;
    EXPECT_EQ(MetadataOf(answer.status(), "field"), field.substr(0, field.find(' ')));
  }
  v1::RunSpec attached = cluster.Spec(1);
  attached.set_worker_kind(v1::WORKER_KIND_ATTACHED);
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(attached)), HasReason(v1::ERROR_REASON_WORKER_KIND));
  v1::RunSpec large = cluster.Spec(1);
  large.mutable_recipe()->append((size_t{1} << 20), '#');
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(large)), HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED));
  // Recipes of a chain share the limit.
  v1::RunSpec halves = cluster.Spec(1);
  halves.mutable_recipe()->append((size_t{1} << 19), '#');
  halves.add_then()->set_recipe(halves.recipe());
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(halves)),
              HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED, HasSubstr("spec.then[0].recipe: with those before")));
}

TEST(CreateRunTest, AChainIsRunAndPublishedAsSubmittedAlsoAfterARestart) {
  Cluster cluster;
  v1::RunSpec spec = cluster.Spec(1);
  spec.set_output_path("/out");
  spec.add_then()->set_recipe(
      "more_stage:\n  p_modifiers:\n    - MagnitudePruningModifier: {targets: [a.weight], final_sparsity: 0.75}\n");
  spec.mutable_then(0)->set_recipe_name("more.yaml");
  spec.add_then()->set_recipe("last_stage:\n  p_modifiers:\n    - ConstantPruningModifier: {targets: [b.weight]}\n");
  cluster.AddWorkers(1);
  cluster.CreateHeld(1);  // keeps the worker, so that the run waits
  const std::string name = cluster.Create(spec);
  ASSERT_EQ(cluster.Get(name).state(), v1::Run::STATE_QUEUED);
  const std::string plan = cluster.Get(name).plan().SerializeAsString();
  cluster.Restart();
  const v1::Run run = cluster.Get(name);
  EXPECT_EQ(run.plan().SerializeAsString(), plan);
  EXPECT_EQ(run.state(), v1::Run::STATE_SUCCEEDED) << run.state_reason() << run.error().message();
  EXPECT_EQ(run.updates_done(), 3);
  const v1::PublishCheckpoint& publish = cluster.worker("w0").last("PublishCheckpoint").publish_checkpoint();
  EXPECT_EQ(publish.recipe(), spec.recipe());
  ASSERT_EQ(publish.plan().then_size(), 2);
  EXPECT_EQ(publish.plan().then(0).recipe(), spec.then(0).recipe());
  EXPECT_EQ(publish.plan().then(0).recipe_name(), "more.yaml");
  EXPECT_EQ(publish.plan().then(1).recipe_name(), "recipe 3");
  EXPECT_EQ(publish.plan().stages(2).recipe(), 2);
}

TEST(CreateRunTest, RecipeErrorsTouchNoRun) {  // known-bugs 74
  Cluster cluster;
  cluster.AddWorkers(1);
  v1::RunSpec spec = cluster.Spec(1);
  spec.set_recipe(
      "s_stage:\n  p_modifiers:\n    - MagnitudePruningModifier: {targets: [a.weight], final_sparsty: 1}\n");
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(spec)),
              HasReason(v1::ERROR_REASON_RECIPE_INVALID, HasSubstr("final_sparsity")));
  spec.set_recipe(
      "s_stage:\n  run_type: train\n  p_modifiers:\n    - ConstantPruningModifier: {targets: [a.weight], start: "
      "0steps}\n");
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(spec)), HasReason(v1::ERROR_REASON_WORKER_KIND));
  EXPECT_EQ(cluster.Call(&Coordinator::ListRuns, v1::ListRunsRequest())->runs_size(), 0);
}

TEST(CreateRunTest, PathsOutsideTheRootsAreRefused) {
  Cluster cluster;
  cluster.options.model_roots = {"/models", "/outputs/"};
  cluster.Boot();
  cluster.AddWorkers(1);
  v1::RunSpec spec = cluster.Spec(1);
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(spec)), IsOk());
  for (const std::string path : {"/modelsX/a", "/etc/passwd", "/models/../etc/passwd", "/"}) {
    spec.set_model_path(path);
    EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(spec)), HasReason(v1::ERROR_REASON_PATH_NOT_ALLOWED))
        << path;
  }
  spec = cluster.Spec(1);
  spec.set_output_path("/outputs/a");
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(spec)), IsOk());
}

TEST(CreateRunTest, TheAnswerOfALostWorkerComesFromAnother) {
  Cluster cluster;
  cluster.AddWorkers(2);
  cluster.worker("w0").On("InspectModel", [&](const v1::Command&, FakeWorker::Messages& answers) {
    answers.clear();
    cluster.Stop("w0");
  });
  std::optional<absl::StatusOr<v1::CreateRunResponse>> answer;
  cluster.coordinator->CreateRun(Request(cluster.Spec(1)),
                                 [&](absl::StatusOr<v1::CreateRunResponse> a) { answer = std::move(a); });
  cluster.Pump();
  EXPECT_FALSE(answer.has_value());
  cluster.Advance(absl::Seconds(15));
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(*answer, IsOk());
}

TEST(CreateRunTest, AWorkerThatNeverAnswersIsNotWaitedForLong) {
  Cluster cluster;
  cluster.AddWorkers(1);
  cluster.worker("w0").On("InspectModel", [](const v1::Command&, FakeWorker::Messages& answers) { answers.clear(); });
  std::optional<absl::StatusOr<v1::CreateRunResponse>> answer;
  cluster.coordinator->CreateRun(Request(cluster.Spec(1)),
                                 [&](absl::StatusOr<v1::CreateRunResponse> a) { answer = std::move(a); });
  cluster.Advance(absl::Seconds(60));
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(*answer, HasReason(v1::ERROR_REASON_DEADLINE));
}

TEST(CreateRunTest, AJournalThatCannotBeWrittenMakesNoRun) {
  Cluster cluster;
  cluster.AddWorkers(1);
  cluster.journal.failing = true;
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(cluster.Spec(1))),
              HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE));
  cluster.journal.failing = false;
  EXPECT_EQ(cluster.Call(&Coordinator::ListRuns, v1::ListRunsRequest())->runs_size(), 0);
}

// --- paging

TEST(PagingTest, PlansOfManyParametersComeInPages) {
  std::vector<std::string> names;
  for (int i = 0; i < 40'000; ++i) names.push_back("layer." + std::to_string(100'000 + i) + ".weight");
  Cluster cluster(names);
  cluster.AddWorkers(1);
  v1::RunSpec spec = cluster.Spec(1);
  spec.set_recipe("s_stage:\n  p_modifiers:\n    - ConstantPruningModifier: {targets: [\"re:layer.*\"]}\n");
  spec.set_hold(true);
  const std::string run = cluster.Create(spec);
  for (const bool by_spec : {false, true}) {
    v1::GetPlanRequest request;
    if (by_spec) {
      *request.mutable_spec() = spec;
    } else {
      request.set_name(run);
    }
    request.set_page_size(5000);
    std::set<std::string> seen;
    int pages = 0;
    do {
      const auto page = cluster.Call(&Coordinator::GetPlan, request);
      ASSERT_THAT(page, IsOk());
      EXPECT_LT(page->ByteSizeLong(), size_t{4} << 20);
      for (const v1::PlannedParameter& parameter : page->parameters()) {
        EXPECT_TRUE(seen.insert(parameter.name()).second);
        EXPECT_EQ(parameter.numel(), 128);
      }
      request.set_page_token(page->next_page_token());
      ++pages;
    } while (!request.page_token().empty());
    EXPECT_EQ(seen.size(), 40'000u);
    EXPECT_EQ(pages, 8);
  }
  v1::GetPlanRequest bad;
  bad.set_name(run);
  for (const std::string token : {"x", "p.0", "p.5.00000000", "r.1.00000000", "p.-1.00000000"}) {
    bad.set_page_token(token);
    EXPECT_THAT(cluster.Call(&Coordinator::GetPlan, bad), HasReason(v1::ERROR_REASON_REQUEST_INVALID)) << token;
  }
  bad.clear_page_token();
  bad.set_page_size(-1);
  EXPECT_THAT(cluster.Call(&Coordinator::GetPlan, bad), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

TEST(PagingTest, RunsNewestFirstAndStableWhileTheyChange) {
  Cluster cluster;
  cluster.AddWorkers(1);
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.push_back(cluster.Create(cluster.Spec(1)));
  v1::ListRunsRequest request;
  request.set_page_size(2);
  const auto first = cluster.Call(&Coordinator::ListRuns, request);
  ASSERT_EQ(first->runs_size(), 2);
  EXPECT_EQ(first->runs(0).name(), names[4]);
  EXPECT_FALSE(first->runs(0).has_plan());
  cluster.Create(cluster.Spec(1));
  v1::DeleteRunRequest forget;
  forget.set_name(names[3]);
  ASSERT_THAT(cluster.Call(&Coordinator::DeleteRun, forget), IsOk());
  request.set_page_token(first->next_page_token());
  const auto second = cluster.Call(&Coordinator::ListRuns, request);
  EXPECT_EQ(second->runs(0).name(), names[2]);
  EXPECT_EQ(second->runs(1).name(), names[1]);
  request.set_page_token(second->next_page_token());
  const auto third = cluster.Call(&Coordinator::ListRuns, request);
  ASSERT_EQ(third->runs_size(), 1);
  EXPECT_EQ(third->next_page_token(), "");
  request.set_page_token("nonsense");
  EXPECT_THAT(cluster.Call(&Coordinator::ListRuns, request), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

TEST(PagingTest, Workers) {
  Cluster cluster;
  cluster.AddWorkers(5);
  v1::ListWorkersRequest request;
  request.set_page_size(3);
  const auto first = cluster.Call(&Coordinator::ListWorkers, request);
  ASSERT_EQ(first->workers_size(), 3);
  request.set_page_token(first->next_page_token());
  const auto second = cluster.Call(&Coordinator::ListWorkers, request);
  ASSERT_EQ(second->workers_size(), 2);
  EXPECT_EQ(second->workers(0).name(), "workers/w3");
  EXPECT_EQ(second->next_page_token(), "");
}

// --- idempotency: every mutating RPC

struct Mutation {
  // Brings the cluster into the state in which the RPC does something; answers what it is about.
  std::function<std::string(Cluster&)> prepare;
  // Calls it under the id, `other` with another payload; answers the serialized answer.
  std::function<void(Cluster&, const std::string& target, const std::string& id, bool other,
                     std::function<void(absl::StatusOr<std::string>)>)>
      call;
};

template <typename Response>
Reply<Response> Serialize(std::function<void(absl::StatusOr<std::string>)> reply) {
  return [reply](const absl::StatusOr<Response>& answer) {
    if (answer.ok()) {
      reply(answer->SerializeAsString());
    } else {
      reply(answer.status());
    }
  };
}

const std::map<std::string, Mutation>& Mutations() {
  using Answer = std::function<void(absl::StatusOr<std::string>)>;
  static const auto& all = *new std::map<std::string, Mutation>{
      {"CreateRun",
       {[](Cluster&) { return ""; },
        [](Cluster& c, const std::string&, const std::string& id, bool other, Answer reply) {
          v1::RunSpec spec = c.Spec(1);
          if (other) spec.set_recipe_name("another.yaml");
          c.coordinator->CreateRun(Request(spec, id), Serialize<v1::CreateRunResponse>(reply));
        }}},
      {"DeleteRun",
       {[](Cluster& c) { return c.Create(c.Spec(1)); },
        [](Cluster& c, const std::string& target, const std::string& id, bool other, Answer reply) {
          v1::DeleteRunRequest request;
          request.set_name(other ? "runs/other" : target);
          request.set_request_id(id);
          c.coordinator->DeleteRun(request, Serialize<v1::DeleteRunResponse>(reply));
        }}},
      {"CancelRun",
       {[](Cluster& c) { return c.CreateHeld(1); },
        [](Cluster& c, const std::string& target, const std::string& id, bool other, Answer reply) {
          v1::CancelRunRequest request;
          request.set_name(target);
          request.set_request_id(id);
          if (other) request.set_reason("another reason");
          c.coordinator->CancelRun(request, Serialize<v1::Run>(reply));
        }}},
      {"FinishRun",
       {[](Cluster& c) { return c.CreateHeld(1); },
        [](Cluster& c, const std::string& target, const std::string& id, bool other, Answer reply) {
          v1::FinishRunRequest request;
          request.set_name(other ? "runs/other" : target);
          request.set_request_id(id);
          c.coordinator->FinishRun(request, Serialize<v1::Run>(reply));
        }}},
      {"SaveCheckpoint",
       {[](Cluster& c) { return c.CreateHeld(1); },
        [](Cluster& c, const std::string& target, const std::string& id, bool other, Answer reply) {
          v1::SaveCheckpointRequest request;
          request.set_name(target);
          request.set_path(other ? "/outputs/other" : "/outputs/one");
          request.set_request_id(id);
          c.coordinator->SaveCheckpoint(request, Serialize<v1::Operation>(reply));
        }}},
      {"CancelOperation",
       {[](Cluster& c) {
          const std::string run = c.CreateHeld(1);
          c.nodes["w0"]->mute = true;
          v1::SaveCheckpointRequest request;
          request.set_name(run);
          request.set_path("/outputs/one");
          return c.Call(&Coordinator::SaveCheckpoint, request)->name();
        },
        [](Cluster& c, const std::string& target, const std::string& id, bool other, Answer reply) {
          v1::CancelOperationRequest request;
          request.set_name(other ? target + "x" : target);
          request.set_request_id(id);
          c.coordinator->CancelOperation(request, Serialize<v1::Operation>(reply));
        }}},
  };
  return all;
}

TEST(IdempotencyTest, EveryMutatingRpcHasACase) {
  const auto* service = v1::CreateRunRequest::descriptor()->file()->FindServiceByName("SparsificationService");
  ASSERT_NE(service, nullptr);
  std::set<std::string> mutating;
  for (int i = 0; i < service->method_count(); ++i) {
    if (service->method(i)->input_type()->FindFieldByName("request_id") != nullptr) {
      mutating.insert(service->method(i)->name());
    }
  }
  std::set<std::string> tested;
  for (const auto& [name, mutation] : Mutations()) tested.insert(name);
  EXPECT_EQ(tested, mutating);
}

class IdempotencyTest : public ::testing::TestWithParam<std::string> {
 protected:
  IdempotencyTest() {
    cluster_.AddWorkers(1);
    target_ = Mutations().at(GetParam()).prepare(cluster_);
  }

  void Start(const std::string& id, bool other = false) {
    const size_t slot = answers_.size();
    answers_.emplace_back();
    Mutations().at(GetParam()).call(cluster_, target_, id, other, [this, slot](absl::StatusOr<std::string> answer) {
      EXPECT_FALSE(answers_[slot].has_value()) << "answered twice";
      answers_[slot] = std::move(answer);
    });
  }
  absl::StatusOr<std::string> Call(const std::string& id, bool other = false) {
    Start(id, other);
    cluster_.Pump();
    EXPECT_TRUE(answers_.back().has_value()) << "not answered";
    return answers_.back().value_or(absl::InternalError("not answered"));
  }

  Cluster cluster_;
  std::string target_;
  std::deque<std::optional<absl::StatusOr<std::string>>> answers_;
};

TEST_P(IdempotencyTest, ARepeatReturnsTheFirstAnswer) {
  const std::string id = NewUuid();
  const auto first = Call(id);
  ASSERT_THAT(first, IsOk());
  cluster_.Advance(absl::Minutes(1));
  const int64_t writes = cluster_.journal.writes();
  const auto second = Call(id);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(*second, *first);
  EXPECT_EQ(cluster_.journal.writes(), writes) << "the repeat did something";
  std::string upper = id;
  for (char& c : upper) c = static_cast<char>(toupper(c));
  EXPECT_EQ(*Call(upper), *first);
}

TEST_P(IdempotencyTest, AlsoWhileTheFirstIsInFlight) {
  const std::string id = NewUuid();
  Start(id);
  Start(id);
  cluster_.Pump();
  ASSERT_TRUE(answers_[0].has_value() && answers_[1].has_value());
  ASSERT_THAT(*answers_[0], IsOk());
  EXPECT_EQ(**answers_[0], **answers_[1]);
}

TEST_P(IdempotencyTest, AlsoAfterARestart) {
  const std::string id = NewUuid();
  const auto first = Call(id);
  ASSERT_THAT(first, IsOk());
  cluster_.Restart();
  const auto second = Call(id);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(*second, *first);
}

TEST_P(IdempotencyTest, AnotherPayloadIsRefused) {
  const std::string id = NewUuid();
  ASSERT_THAT(Call(id), IsOk());
  const auto reused = Call(id, /*other=*/true);
  EXPECT_THAT(reused, HasReason(v1::ERROR_REASON_REQUEST_ID_REUSED));
  EXPECT_EQ(reused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(MetadataOf(reused.status(), "request_id"), id);
}

TEST_P(IdempotencyTest, AnIdMustBeAUuid) {
  EXPECT_THAT(Call("once"), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

TEST_P(IdempotencyTest, AFailureIsNotRemembered) {
  const std::string id = NewUuid();
  cluster_.Advance(absl::Seconds(1));
  cluster_.journal.failing = true;
  EXPECT_FALSE(Call(id).ok() && GetParam() != "CancelOperation");
  cluster_.journal.failing = false;
  EXPECT_THAT(Call(id), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Rpcs, IdempotencyTest,
                         ::testing::Values("CreateRun", "DeleteRun", "CancelRun", "FinishRun", "SaveCheckpoint",
                                           "CancelOperation"),
                         [](const auto& info) { return info.param; });

TEST(IdempotencyExpiryTest, IdsAreForgottenAfterADay) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string id = NewUuid();
  const auto first = cluster.Call(&Coordinator::CreateRun, Request(cluster.Spec(1), id));
  cluster.Stop("w0");
  cluster.clock.Advance(absl::Hours(25));
  cluster.Pump();
  int requests = 0;
  for (const JournalRecord& row : cluster.journal.Read()) requests += row.kind == "request" ? 1 : 0;
  EXPECT_EQ(requests, 0);
  cluster.Respawn("w0");
  const auto second = cluster.Call(&Coordinator::CreateRun, Request(cluster.Spec(1), id));
  EXPECT_NE(first->run().name(), second->run().name());
}

// --- watching

std::shared_ptr<EventSink> Watch(Cluster& cluster, const std::string& name, int64_t resume, size_t room = 1000) {
  auto sink = std::make_shared<EventSink>();
  sink->room = room;
  v1::WatchRunRequest request;
  request.set_name(name);
  request.set_resume_revision(resume);
  cluster.coordinator->WatchRun(request, sink);
  return sink;
}

TEST(WatchTest, ASnapshotThenEveryEventThenTheEnd) {  // G12
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string name = cluster.CreateHeld(1);
  const auto sink = Watch(cluster, name, 0);
  ASSERT_EQ(sink->messages.size(), 1u);
  EXPECT_EQ(sink->messages[0].type(), "Snapshot");
  v1::FinishRunRequest finish;
  finish.set_name(name);
  ASSERT_THAT(cluster.Call(&Coordinator::FinishRun, finish), IsOk());
  ASSERT_TRUE(sink->status.has_value());
  EXPECT_THAT(*sink->status, IsOk());
  int64_t revision = sink->messages[0].revision();
  for (size_t i = 1; i < sink->messages.size(); ++i) EXPECT_EQ(sink->messages[i].revision(), ++revision);
  EXPECT_EQ(sink->messages.back().run().state(), v1::Run::STATE_SUCCEEDED);
}

TEST(WatchTest, ResumesAnywhereWithoutGapsOrRepeats) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string name = cluster.Create(cluster.Spec(1));
  const int64_t last = cluster.Get(name).revision();
  for (int64_t from = 1; from <= last; ++from) {
    const auto sink = Watch(cluster, name, from);
    ASSERT_EQ(sink->messages.size(), static_cast<size_t>(last - from));
    for (size_t i = 0; i < sink->messages.size(); ++i) {
      EXPECT_EQ(sink->messages[i].revision(), from + 1 + static_cast<int64_t>(i));
    }
    EXPECT_THAT(*sink->status, IsOk());
  }
  EXPECT_THAT(*Watch(cluster, name, last + 1)->status, HasReason(v1::ERROR_REASON_REQUEST_INVALID));
  EXPECT_THAT(*Watch(cluster, "runs/none", 0)->status, HasReason(v1::ERROR_REASON_RUN_NOT_FOUND));
}

TEST(WatchTest, HistoryIsBounded) {
  Cluster cluster;
  cluster.options.store.max_events = 4;
  cluster.Boot();
  cluster.AddWorkers(1);
  const std::string name = cluster.Create(cluster.Spec(1));
  const int64_t last = cluster.Get(name).revision();
  const auto gone = Watch(cluster, name, 1);
  EXPECT_THAT(*gone->status, HasReason(v1::ERROR_REASON_HISTORY_COMPACTED));
  EXPECT_EQ(gone->status->code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(MetadataOf(*gone->status, "oldest"), std::to_string(last - 3));
  EXPECT_EQ(Watch(cluster, name, last - 4)->messages.size(), 4u);
  cluster.Restart();
  EXPECT_EQ(Watch(cluster, name, last - 4)->messages.size(), 4u);
  EXPECT_THAT(*Watch(cluster, name, last - 5)->status, HasReason(v1::ERROR_REASON_HISTORY_COMPACTED));
}

TEST(WatchTest, ASlowWatcherIsToldAndNotThinned) {  // known-bugs 59
  Cluster cluster;
  cluster.options.store.max_events = 4;
  cluster.Boot();
  cluster.AddWorkers(1);
  cluster.worker("w0").On("JoinGroup",
                          [&](const v1::Command&, FakeWorker::Messages&) { cluster.nodes["w0"]->mute = true; });
  const std::string name = cluster.Create(cluster.Spec(1));
  const auto slow = Watch(cluster, name, 0, /*room=*/1);
  const auto steady = Watch(cluster, name, 0);
  cluster.Unmute("w0");
  ASSERT_TRUE(slow->status.has_value());
  EXPECT_THAT(*slow->status, HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED));
  EXPECT_EQ(slow->messages.size(), 1u);
  EXPECT_THAT(*steady->status, IsOk());
}

TEST(WatchTest, AWatcherGoesOnWhereItStoppedReading) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string name = cluster.Create(cluster.Spec(1));
  const auto sink = Watch(cluster, name, 1, /*room=*/2);
  EXPECT_EQ(sink->messages.size(), 2u);
  EXPECT_FALSE(sink->status.has_value());
  sink->GiveRoom(1000);
  cluster.Pump();
  EXPECT_THAT(*sink->status, IsOk());
  EXPECT_EQ(sink->messages.back().revision(), cluster.Get(name).revision());
}

TEST(WatchTest, BookmarksWhenNothingHappens) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string name = cluster.CreateHeld(1);
  const auto sink = Watch(cluster, name, 0);
  cluster.Advance(absl::Seconds(10));
  ASSERT_EQ(sink->messages.size(), 2u);
  EXPECT_EQ(sink->messages[1].type(), "Bookmark");
  EXPECT_EQ(sink->messages[1].revision(), sink->messages[0].revision());
  EXPECT_FALSE(sink->messages[1].has_run());
}

TEST(WatchTest, WatchersAreLimited) {
  Cluster cluster;
  cluster.options.store.max_watchers = 2;
  cluster.Boot();
  cluster.AddWorkers(1);
  const std::string name = cluster.CreateHeld(1);
  const auto first = Watch(cluster, name, 0);
  const auto second = Watch(cluster, name, 0);
  EXPECT_THAT(*Watch(cluster, name, 0)->status, HasReason(v1::ERROR_REASON_LIMIT_EXCEEDED));
  first->Abandon();
  cluster.Pump();
  EXPECT_FALSE(Watch(cluster, name, 0)->status.has_value());
}

TEST(WatchTest, ProgressIsSummedOverTheRanks) {
  Cluster cluster;
  cluster.AddWorkers(2);
  for (const std::string worker : {"w0", "w1"}) {
    cluster.worker(worker).On("LoadModel", [](const v1::Command& command, FakeWorker::Messages& answers) {
      v1::WorkerMessage message;
      v1::CommandProgress& progress = *message.mutable_progress();
      progress.set_command_id(command.command_id());
      progress.set_phase("load");
      progress.set_done(10);
      progress.set_total(50);
      progress.set_unit("bytes");
      answers.insert(answers.begin(), message);
    });
  }
  cluster.Stop("w1");
  const std::string name = cluster.Create(cluster.Spec(2));
  v1::WatchRunRequest request;
  request.set_name(name);
  const auto sink = std::make_shared<RecordingSink<v1::RunEvent>>();
  cluster.coordinator->WatchRun(request, sink);
  cluster.nodes.at("w1")->stopped = false;
  cluster.Pump();
  int seen = 0;
  for (const v1::RunEvent& event : sink->messages) {
    if (event.type() != "Progress") continue;
    ++seen;
    EXPECT_EQ(event.progress().phase(), "load");
  }
  EXPECT_EQ(seen, 1) << "the second came too soon after the first";
}

// --- deleting, restarting, draining

TEST(DeleteRunTest, OnlyEndedRuns) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string held = cluster.CreateHeld(1);
  v1::DeleteRunRequest request;
  request.set_name(held);
  EXPECT_THAT(cluster.Call(&Coordinator::DeleteRun, request), HasReason(v1::ERROR_REASON_ILLEGAL_TRANSITION));
  v1::CancelRunRequest cancel;
  cancel.set_name(held);
  ASSERT_THAT(cluster.Call(&Coordinator::CancelRun, cancel), IsOk());
  EXPECT_THAT(cluster.Call(&Coordinator::DeleteRun, request), IsOk());
  EXPECT_THAT(cluster.Call(&Coordinator::DeleteRun, request), HasReason(v1::ERROR_REASON_RUN_NOT_FOUND));
  cluster.Restart();
  EXPECT_EQ(cluster.Call(&Coordinator::ListRuns, v1::ListRunsRequest())->runs_size(), 0);
}

TEST(RestartTest, EndedRunsKeepStateAndEvents) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string name = cluster.Create(cluster.Spec(1));
  const v1::Run before = cluster.Get(name);
  std::vector<std::string> events;
  for (const v1::RunEvent& event : cluster.Events(name)) events.push_back(event.SerializeAsString());
  cluster.Restart();
  EXPECT_EQ(cluster.Get(name).SerializeAsString(), before.SerializeAsString());
  const std::vector<v1::RunEvent> after = cluster.Events(name);
  ASSERT_EQ(after.size(), events.size());
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(after[i].SerializeAsString(), events[i]);
}

class RestartTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RestartTest, LiveRunsHaveFailedAndTheirWorkersAreFree) {
  Cluster cluster;
  cluster.AddWorkers(2);
  const std::string operation = GetParam();
  cluster.worker("w1").On(operation, [](const v1::Command&, FakeWorker::Messages& answers) { answers.clear(); });
  v1::RunSpec spec = cluster.Spec(2);
  spec.set_output_path("/outputs/one");
  const std::string name = cluster.Create(spec);
  const std::string queued = cluster.Create(cluster.Spec(3));
  cluster.worker("w1").Clear();
  cluster.Restart();
  const v1::Run run = cluster.Get(name);
  ASSERT_EQ(run.state(), v1::Run::STATE_FAILED);
  EXPECT_THAT(FromProto(run.error()), HasReason(v1::ERROR_REASON_WORKER_LOST, HasSubstr("coordinator restarted")));
  EXPECT_EQ(cluster.Events(name).back().run().state(), v1::Run::STATE_FAILED);
  EXPECT_EQ(cluster.Get(queued).state(), v1::Run::STATE_QUEUED);
  EXPECT_EQ(cluster.coordinator->registry().Idle().size(), 2u);
  if (operation == "SaveShards" || operation == "PublishCheckpoint") {  // known-bugs 52
    std::vector<std::string> all = cluster.worker("w0").executed();
    const std::vector<std::string>& more = cluster.worker("w1").executed();
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_THAT(all, ::testing::Contains("DiscardCheckpoint"));
  }
  // And the next run works (known-bugs 42).
  EXPECT_EQ(cluster.Get(cluster.Create(cluster.Spec(2))).state(), v1::Run::STATE_QUEUED) << "behind the older one";
  v1::CancelRunRequest cancel;
  cancel.set_name(queued);
  ASSERT_THAT(cluster.Call(&Coordinator::CancelRun, cancel), IsOk());
  EXPECT_EQ(cluster.Get(cluster.Create(cluster.Spec(2))).state(), v1::Run::STATE_SUCCEEDED);
}

INSTANTIATE_TEST_SUITE_P(Phases, RestartTest, ::testing::Values("JoinGroup", "LoadModel", "UpdateMasks", "SaveShards"));

TEST(RestartJournalTest, RowsThatDoNotParseAreCorruption) {
  Cluster cluster;
  cluster.AddWorkers(1);
  const std::string name = cluster.Create(cluster.Spec(1));
  ASSERT_THAT(cluster.journal.Append(std::vector<JournalRecord>{{"run", name, "", "\xff\xff garbage"}}), IsOk());
  Coordinator next(cluster.loop, cluster.journal, cluster.options);
  EXPECT_THAT(next.Load(), HasReason(v1::ERROR_REASON_JOURNAL_CORRUPT));
}

TEST(DrainTest, EverythingEndsWithAReason) {  // G13
  Cluster cluster;
  cluster.AddWorkers(2);
  const std::string live = cluster.CreateHeld(1);
  const std::string queued = cluster.CreateHeld(4);
  const auto live_watch = Watch(cluster, live, 0);
  const auto queued_watch = Watch(cluster, queued, 0);
  cluster.worker("w1").On("InspectModel", [](const v1::Command&, FakeWorker::Messages& answers) { answers.clear(); });
  std::optional<absl::StatusOr<v1::CreateRunResponse>> waiting;
  cluster.coordinator->CreateRun(Request(cluster.Spec(1)),
                                 [&](absl::StatusOr<v1::CreateRunResponse> a) { waiting = std::move(a); });
  cluster.Pump();
  cluster.coordinator->Drain();
  cluster.Pump();
  ASSERT_TRUE(waiting.has_value());
  EXPECT_THAT(*waiting, HasReason(v1::ERROR_REASON_DRAINING));
  EXPECT_THAT(*live_watch->status, IsOk());
  EXPECT_THAT(*queued_watch->status, HasReason(v1::ERROR_REASON_DRAINING));
  EXPECT_THAT(FromProto(cluster.Get(live).error()), HasReason(v1::ERROR_REASON_DRAINING));
  EXPECT_EQ(cluster.worker("w0").voided().size(), 1u) << "workers are told before their streams end";
  EXPECT_THAT(cluster.Call(&Coordinator::CreateRun, Request(cluster.Spec(1))), HasReason(v1::ERROR_REASON_DRAINING));
  EXPECT_EQ(cluster.Get(queued).state(), v1::Run::STATE_QUEUED);
}

TEST(ServerInfoTest, TellsItsLimits) {
  Cluster cluster;
  std::optional<v1::GetServerInfoResponse> info;
  cluster.coordinator->GetServerInfo([&](absl::StatusOr<v1::GetServerInfoResponse> answer) { info = *answer; });
  EXPECT_TRUE(IsUuid(info->instance_id()));
  EXPECT_EQ(info->max_recipe_bytes(), 1 << 20);
  EXPECT_EQ(info->lease().seconds(), 15);
  EXPECT_THAT(info->api_versions(), ElementsAre("v1"));
}

}  // namespace
}  // namespace espalier
