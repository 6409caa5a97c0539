#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/v1/model.pb.h"
#include "espalier/v1/worker_service.pb.h"
#include "server/fleet/worker_registry.h"
#include "server/run/event_loop.h"

namespace espalier {

// Asks a worker what a model is: the coordinator needs no mount of it. On the event loop only.
class ModelInspector {
 public:
  // `patience`: after it the question has failed with DEADLINE.
  ModelInspector(EventLoop& loop, WorkerRegistry& registry, absl::Duration patience = absl::Seconds(60))
      : loop_(loop), registry_(registry), patience_(patience) {}

  using Done = std::function<void(absl::StatusOr<v1::ModelDescription>)>;
  // Any connected worker, idle ones first; when it is lost, another. WORKERS_MISSING without one, DEADLINE; else what the
  // worker answers: CHECKPOINT_INVALID, PATH_NOT_ALLOWED, OUTPUT_EXISTS, STORAGE_UNWRITABLE.
  void Inspect(const v1::InspectModel& question, Done done);

  // All that wait are answered with `status`.
  void Stop(const absl::Status& status);

 private:
  struct Question {
    v1::InspectModel op;
    Done done;
    std::vector<std::string> asked;
    std::string worker;
    int64_t command_id = 0;
    EventLoop::TimerId timer = 0;
    v1::ModelDescription model;
    std::map<std::string, v1::Parameter> parameters;  // by name: a page may come twice
  };

  void Ask(int64_t id);
  void End(int64_t id, absl::StatusOr<v1::ModelDescription> answer);

  EventLoop& loop_;
  WorkerRegistry& registry_;
  const absl::Duration patience_;
  std::map<int64_t, Question> questions_;
  int64_t next_ = 1;
};

}  // namespace espalier
