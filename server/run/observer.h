#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "espalier/v1/resources.pb.h"
#include "espalier/v1/worker_service.pb.h"

namespace espalier {

// Told what happens at the coordinator, for figures and pages; what it does with it changes nothing. Called by the event
// loop (and by Load before it runs) from the middle of things: it must be quick and must not call back.
class Observer {
 public:
  virtual ~Observer() = default;

  // A run is known from now on: made, or read from the journal.
  virtual void OnRun(const v1::Run& run) = 0;
  // It changed; `event` is the type of the RunEvent.
  virtual void OnRunChanged(const v1::Run& before, const v1::Run& after, absl::string_view event) = 0;
  virtual void OnRunForgotten(const v1::Run& run) = 0;
  // All ranks committed an update; all committed updates together want `wanted` of the model's `elements` to be zero.
  virtual void OnMasksCommitted(const v1::Run& run, int64_t wanted, int64_t elements) = 0;

  // A command to a group ended after `elapsed`, with the acks of the ranks that answered OK. `status`: OK where all did,
  // else the error that decides over it; DEADLINE_EXCEEDED where no answer came.
  virtual void OnCommand(absl::string_view operation, absl::Duration elapsed, absl::Span<const v1::Ack* const> acks,
                         const absl::Status& status) = 0;

  // All workers as they are now; once a second or so.
  virtual void OnWorkers(const std::vector<v1::Worker>& workers) = 0;
  virtual void OnWorkerLost() = 0;
};

// Sees nothing.
class NullObserver final : public Observer {
 public:
  void OnRun(const v1::Run&) override {}
  void OnRunChanged(const v1::Run&, const v1::Run&, absl::string_view) override {}
  void OnRunForgotten(const v1::Run&) override {}
  void OnMasksCommitted(const v1::Run&, int64_t, int64_t) override {}
  void OnCommand(absl::string_view, absl::Duration, absl::Span<const v1::Ack* const>, const absl::Status&) override {}
  void OnWorkers(const std::vector<v1::Worker>&) override {}
  void OnWorkerLost() override {}

  // One for all who were given none.
  static NullObserver& Instance() {
    static NullObserver instance;
    return instance;
  }
};

}  // namespace espalier
