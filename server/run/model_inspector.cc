#include "server/run/model_inspector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"

namespace espalier {

void ModelInspector::Inspect(const v1::InspectModel& question, Done done) {
  const int64_t id = next_++;
  questions_[id].op = question;
  questions_[id].done = std::move(done);
  questions_[id].timer = loop_.After(patience_, [this, id] {
    Question& late = questions_[id];
    registry_.Forget(late.worker, late.command_id);
    End(id, MakeError(v1::ERROR_REASON_DEADLINE,
                      absl::StrCat("worker ", late.worker, " did not describe the model within ",
                                   absl::FormatDuration(patience_), "; see its log"),
                      {{"operation", "InspectModel"}}));
  });
  Ask(id);
}

void ModelInspector::Ask(int64_t id) {
  Question& question = questions_[id];
  std::vector<std::string> workers;
  for (IdleWorker& idle : registry_.Idle()) workers.push_back(std::move(idle.name));
  const std::vector<std::string> connected = registry_.Connected();
  workers.insert(workers.end(), connected.begin(), connected.end());
  const auto fresh = std::find_if(workers.begin(), workers.end(), [&](const std::string& worker) {
    return std::find(question.asked.begin(), question.asked.end(), worker) == question.asked.end();
  });
  if (fresh == workers.end()) {
    End(id, MakeError(v1::ERROR_REASON_WORKERS_MISSING,
                      "no worker is connected that could read the model; start one with espalier-worker",
                      {{"have", absl::StrCat(connected.size())}, {"need", "1"}}));
    return;
  }
  question.worker = *fresh;
  question.asked.push_back(*fresh);
  v1::Command command;
  *command.mutable_inspect_model() = question.op;
  *command.mutable_deadline() =
      google::protobuf::util::TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(patience_));
  CommandHandler handler;
  handler.page = [this, id](const v1::ResultPage& page) {
    if (!page.has_model()) return;
    Question& question = questions_[id];
    v1::ModelDescription part = page.model();
    for (v1::Parameter& parameter : *part.mutable_parameters()) {
      question.parameters[parameter.name()] = std::move(parameter);
    }
    part.clear_parameters();
    for (const std::string& note : part.notes()) {
      const auto& known = question.model.notes();
      if (std::find(known.begin(), known.end(), note) == known.end()) question.model.add_notes(note);
    }
    part.clear_notes();
    question.model.MergeFrom(part);
  };
  handler.done = [this, id](const absl::StatusOr<v1::Ack>& ack) {
    Question& question = questions_[id];
    if (ReasonOf(ack.status()) == v1::ERROR_REASON_WORKER_LOST) {
      question.model.Clear();
      question.parameters.clear();
      return Ask(id);
    }
    if (!ack.ok()) return End(id, ack.status());
    for (auto& [name, parameter] : question.parameters) *question.model.add_parameters() = std::move(parameter);
    End(id, std::move(question.model));
  };
  const int64_t command_id = registry_.SendCommand(question.worker, {command}, std::move(handler));
  if (command_id == 0) return Ask(id);
  // The answer cannot have come yet: acks arrive through the loop.
  question.command_id = command_id;
}

void ModelInspector::End(int64_t id, absl::StatusOr<v1::ModelDescription> answer) {
  const auto node = questions_.extract(id);
  loop_.Cancel(node.mapped().timer);
  node.mapped().done(std::move(answer));
}

void ModelInspector::Stop(const absl::Status& status) {
  while (!questions_.empty()) {
    const auto first = questions_.begin();
    registry_.Forget(first->second.worker, first->second.command_id);
    End(first->first, status);
  }
}

}  // namespace espalier
