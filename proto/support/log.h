#pragma once

// Logging of all our processes: one line per change of state on standard error, key=value or a JSON object.
//   LogInfo("run_state", {{"run", name}, {"state", "RUNNING"}});
// Values are quoted where they need it. Never tensors, never secrets. Thread-safe.

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace espalier {

using LogFields = std::initializer_list<std::pair<absl::string_view, std::string>>;

// Names this process in every line ("worker-0"); level: debug, info, warn, error; format: text, json. Call once, early in
// main. REQUEST_INVALID for another level or format.
absl::Status InitLog(absl::string_view process, absl::string_view level, absl::string_view format = "text");

void LogDebug(absl::string_view event, LogFields fields = {});
void LogInfo(absl::string_view event, LogFields fields = {});
void LogWarn(absl::string_view event, LogFields fields = {});
void LogError(absl::string_view event, LogFields fields = {});

// event=... key="va lue" ...
std::string FormatLogLine(absl::string_view event, LogFields fields);
// "event":"...","key":"va lue", without braces. What is not UTF-8 is replaced.
std::string FormatJsonFields(absl::string_view event, LogFields fields);

}  // namespace espalier
