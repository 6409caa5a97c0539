// The RPCs of SparsificationService that plan: new runs, and plans alone.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"
#include "server/recipe/planner.h"
#include "server/run/coordinator.h"
#include "server/run/coordinator_mutate.h"
#include "server/run/plan_pages.h"
#include "server/run/requests.h"

namespace espalier {
namespace {

constexpr size_t kCachedPlans = 4;
// A modifier travels to the worker that writes the manifest in one message.
constexpr size_t kMaxModifierBytes = size_t{3} << 20;

uint32_t CheckOf(const std::string& bytes) {
  return Crc32(0, bytes.data(), bytes.size());
}

absl::Status CheckPlanSize(const v1::Plan& plan) {
  for (const v1::PlannedModifier& modifier : plan.modifiers()) {
    const size_t bytes = modifier.ByteSizeLong();
    if (bytes <= kMaxModifierBytes) continue;
    return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                     absl::StrCat("modifier ", modifier.type(), " owns ", modifier.parameters_size(), " parameters, ",
                                  bytes, " bytes of names, at most ", kMaxModifierBytes, "; split it into several"),
                     {{"limit", absl::StrCat(kMaxModifierBytes)}, {"value", absl::StrCat(bytes)}});
  }
  return absl::OkStatus();
}

}  // namespace

void Coordinator::PlanSpec(const v1::RunSpec& spec, Planned done) {
  v1::InspectModel question;
  question.set_path(spec.model_path());
  question.set_output_path(spec.output_path());
  question.set_overwrite(spec.overwrite());
  question.set_ignore_stored_masks(spec.ignore_stored_masks());
  inspector_.Inspect(question, [spec, done = std::move(done)](absl::StatusOr<v1::ModelDescription> model) {
    if (!model.ok()) return done(model.status());
    PlanOptions options;
    options.worker_kind = spec.worker_kind();
    options.world_size = spec.world_size();
    absl::StatusOr<v1::Plan> plan = MakePlan(RecipesOf(spec), *model, options);
    if (!plan.ok()) return done(plan.status());
    v1::PlanSummary summary = SummarizePlan(*plan);
    done(CachedPlan{.plan = *std::move(plan), .summary = std::move(summary), .model = *std::move(model)});
  });
}

void Coordinator::CreateRun(const v1::CreateRunRequest& request, Reply<v1::CreateRunResponse> reply) {
  Mutate<v1::CreateRunRequest, v1::CreateRunResponse>(
      "CreateRun", request, std::move(reply),
      [this, request](const RowsOf<v1::CreateRunResponse>& rows_of, Reply<v1::CreateRunResponse> done) {
        const absl::StatusOr<v1::RunSpec> spec = CompleteSpec(request.spec(), options_.model_roots);
        if (!spec.ok()) return done(spec.status());
        PlanSpec(*spec, [this, request, rows_of, done, spec = *spec](absl::StatusOr<CachedPlan> planned) {
          if (!planned.ok()) return done(planned.status());
          for (const absl::Status& status :
               {CheckRunnable(planned->plan, spec.worker_kind()), CheckPlanSize(planned->plan)}) {
            if (!status.ok()) return done(status);
          }
          const std::vector<IdleWorker> idle = registry_.Idle();
          const ClaimDecision claim = DecideClaim(spec.world_size(), idle);
          const bool wait = !request.has_wait_for_workers() || request.wait_for_workers();
          if (!wait && (claim.workers.empty() || !queue_.empty())) {
            return done(
                MakeError(v1::ERROR_REASON_WORKERS_MISSING,
                          absl::StrCat(claim.workers.empty() ? claim.reason : absl::StrCat(idle.size(), " are idle"),
                                       queue_.empty() ? "" : ", and other runs wait for them",
                                       "; start more, or let the run wait"),
                          {{"have", absl::StrCat(idle.size())}, {"need", absl::StrCat(spec.world_size())}}));
          }
          RunEntry entry;
          entry.spec = spec;
          entry.plan = std::move(planned->plan);
          entry.summary = std::move(planned->summary);
          entry.model = std::move(planned->model);
          v1::Run& run = entry.run;
          run.set_worker_kind(spec.worker_kind());
          run.set_world_size(spec.world_size());
          run.set_model_path(spec.model_path());
          run.set_output_path(spec.output_path());
          run.set_hold(spec.hold());
          run.set_updates_total(entry.plan.updates_size());
          if (!queue_.empty()) run.set_state_reason(absl::StrCat("behind ", queue_.back()));
          const auto answer = [summary = entry.summary](const v1::Run& run) {
            v1::CreateRunResponse response;
            *response.mutable_run() = run;
            *response.mutable_run()->mutable_plan() = summary;
            return response;
          };
          if (request.validate_only()) {
            run.set_state(v1::Run::STATE_QUEUED);
            return done(answer(run));
          }
          const absl::StatusOr<RunEntry*> created = store_.Create(std::move(entry), rows_of(answer));
          if (!created.ok()) return done(created.status());
          queue_.push_back((*created)->run.name());
          done(answer((*created)->run));
          ScheduleSoon();
        });
      });
}

void Coordinator::GetPlan(const v1::GetPlanRequest& request, Reply<v1::GetPlanResponse> reply) {
  const absl::Status ready = Ready();
  if (!ready.ok()) return reply(ready);
  if (!request.name().empty()) {
    const absl::StatusOr<RunEntry*> entry = store_.Get(request.name());
    if (!entry.ok()) return reply(entry.status());
    // The plan of a run never changes.
    return reply(PlanPage((*entry)->plan, (*entry)->summary, (*entry)->model, CheckOf((*entry)->run.name()),
                          request.page_size(), request.page_token()));
  }
  const absl::StatusOr<v1::RunSpec> spec = CompleteSpec(request.spec(), options_.model_roots);
  if (!spec.ok()) return reply(spec.status());
  const auto answer = [request, reply](const CachedPlan& plan) {
    reply(PlanPage(plan.plan, plan.summary, plan.model, plan.check, request.page_size(), request.page_token()));
  };
  // Later pages come from the plan that the first one was cut from, while it is remembered.
  const std::string key = spec->SerializeAsString();
  const auto known = std::find_if(plans_.begin(), plans_.end(), [&](const CachedPlan& p) { return p.key == key; });
  if (!request.page_token().empty() && known != plans_.end()) return answer(*known);
  PlanSpec(*spec, [this, key, reply, answer](absl::StatusOr<CachedPlan> planned) {
    if (!planned.ok()) return reply(planned.status());
    planned->key = key;
    planned->check = CheckOf(planned->plan.SerializeAsString());
    plans_.erase(std::remove_if(plans_.begin(), plans_.end(), [&](const CachedPlan& p) { return p.key == key; }),
                 plans_.end());
    if (plans_.size() >= kCachedPlans) plans_.pop_front();
    plans_.push_back(*std::move(planned));
    answer(plans_.back());
  });
}

}  // namespace espalier
