#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cli/terminal.h"

namespace espalier::cli {

// How far work is. On a terminal a bar for each phase, redrawn in place; elsewhere a line when a phase ends, and every ten
// seconds while it lasts. One phase is open at a time. Not thread-safe.
class Progress {
 public:
  // `now` is injected; only differences mean anything.
  Progress(std::ostream& out, const Terminal& terminal, std::function<absl::Duration()> now);
  // Leaves an open phase as it is.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // A line of text above the bar.
  void Line(absl::string_view text);
  // The phase `label` is at done of total, in `unit` (bytes are written in decimal units). Another label ends the phase
  // that was open. total 0: not known.
  void Step(absl::string_view label, int64_t done, int64_t total, absl::string_view unit);
  // Ends the open phase; as complete, or as it stands.
  void End(bool complete);
  // Shows the time that has passed, where it is due; call it now and then.
  void Tick();

 private:
  std::string Bar(bool complete) const;
  std::string Amount(bool complete) const;
  void Draw();
  void Erase();

  std::ostream& out_;
  const Terminal terminal_;
  const std::function<absl::Duration()> now_;
  bool open_ = false;
  bool drawn_ = false;
  std::string label_;
  int64_t done_ = 0;
  int64_t total_ = 0;
  std::string unit_;
  absl::Duration began_;
  absl::Duration shown_;
};

}  // namespace espalier::cli
