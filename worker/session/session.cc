#include "worker/session/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "worker/session/handlers/handlers.h"

namespace espalier {
namespace {

constexpr int kProtocolVersion = 1;

WorkerServices ServicesOf(const SessionOptions& options, GroupFactory& groups, Holding& holding, const Clock& clock) {
  WorkerServices services;
  services.roots = options.roots;
  services.groups = &groups;
  services.holding = &holding;
  services.clock = &clock;
  services.uploads = {options.link.coordinator, options.worker, options.incarnation};
  return services;
}

std::function<void(const v1::Command&, const v1::Ack&, absl::Duration)> CounterOf(WorkerMetrics* metrics) {
  return [metrics](const v1::Command& command, const v1::Ack& ack, absl::Duration elapsed) {
    if (metrics != nullptr) metrics->OnCommand(command, ack, elapsed);
  };
}

}  // namespace

Session::Session(SessionOptions options, GroupFactory& groups, const Clock& clock)
    : options_(std::move(options)),
      commands_(clock),
      inspections_(clock),
      state_(ServicesOf(options_, groups, holding_, clock)),
      link_(options_.link, *this, clock),
      watch_(holding_, {.grace = options_.void_grace, .stuck = options_.stuck}),
      executor_(commands_, gate_, &holding_, clock,
                {.execute = [this](const CommandContext& context,
                                   CommandResult& result) { return ExecuteCommand(state_, context, result); },
                 .send = [this](v1::WorkerMessage message) { link_.Send(std::move(message)); },
                 .executed = CounterOf(options_.metrics)}),
      inspector_(inspections_, gate_, nullptr, clock,
                 {.execute = [this](const CommandContext& context,
                                    CommandResult& result) { return InspectModel(options_.roots, context, result); },
                  .send = [this](v1::WorkerMessage message) { link_.Send(std::move(message)); },
                  .executed = CounterOf(options_.metrics)}) {}

void Session::Stop(absl::Duration grace) {
  std::call_once(stopped_, [&] {
    commands_.Close();
    inspections_.Close();
    if (holding_.WaitIdle(grace)) {
      executor_.Finish();
      state_.Leave();
    } else {
      holding_.CancelAny(MakeError(v1::ERROR_REASON_CANCELLED, "the worker was told to end"));
    }
    link_.Stop();
  });
}

v1::Hello Session::MakeHello() {
  // A new stream begins: what came in pieces on the last one is sent again as a whole.
  commands_.DropPartial();
  inspections_.DropPartial();
  v1::Hello hello;
  hello.set_kind(v1::WORKER_KIND_CHECKPOINT);
  hello.set_worker(options_.worker);
  hello.set_incarnation(options_.incarnation);
  hello.set_host(options_.host);
  hello.set_device(options_.device);
  for (const std::string& backend : options_.backends) hello.add_backends(backend);
  hello.set_protocol_version(kProtocolVersion);
  hello.set_version(ESPALIER_VERSION);
  holding_.Describe(hello);
  return hello;
}

void Session::OnWelcome(const v1::Welcome& welcome) {
  LogInfo("welcomed", {{"coordinator", options_.link.coordinator}, {"instance", welcome.instance_id()}});
  if (options_.metrics != nullptr) options_.metrics->OnWelcome();
  executor_.SetCoordinator(welcome.instance_id());
  inspector_.SetCoordinator(welcome.instance_id());
}

void Session::OnSessionEnded() {
  if (options_.metrics != nullptr) options_.metrics->OnSessionEnded();
}

void Session::OnCommand(v1::Command command) {
  (command.has_inspect_model() ? inspections_ : commands_).Push(std::move(command));
}

void Session::OnVoidGeneration(const v1::VoidGeneration& message) {
  LogWarn("generation_void",
          {{"run", message.run()}, {"generation", absl::StrCat(message.generation())}, {"reason", message.reason()}});
  gate_.Void(message.run(), message.generation());
  const std::string why =
      absl::StrCat("generation ", message.generation(), " of ", message.run(), " is void: ", message.reason());
  // The watch first: to cancel may itself take long.
  watch_.Watch(message.run(), message.generation(), why);
  holding_.Cancel(message.run(), message.generation(),
                  MakeError(v1::ERROR_REASON_GENERATION_STALE, why, {{"given", absl::StrCat(message.generation())}}));
  // Nobody will ask for what is held any more.
  v1::Command leave;
  leave.set_run(message.run());
  leave.set_generation(message.generation());
  leave.mutable_leave_group();
  commands_.PushWhole(std::move(leave));
}

}  // namespace espalier
