#include "proto/support/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

bool NeedsQuotes(absl::string_view value) {
  if (value.empty()) return true;
  for (const unsigned char c : value) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return true;
  }
  return false;
}

void AppendValue(std::string& out, absl::string_view value) {
  if (!NeedsQuotes(value)) {
    absl::StrAppend(&out, value);
    return;
  }
  out += '"';
  for (const char c : value) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  out += '"';
}

spdlog::logger& Logger() {
  // Made by hand, never destroyed: threads may log while the process exits.
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("espalier", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *logger;
}

// Set once by InitLog before threads start.
std::string& ProcessField() {
  static std::string* const field = new std::string;
  return *field;
}

void Write(spdlog::level::level_enum level, absl::string_view event, LogFields fields) {
  if (!Logger().should_log(level)) return;
  Logger().log(level, "{}", absl::StrCat(ProcessField(), FormatLogLine(event, fields)));
}

}  // namespace

absl::Status InitLog(absl::string_view process, absl::string_view level) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                     absl::StrCat("log level \"", level, "\" is not one of debug, info, warn, error, off"));
  }
  Logger().set_level(parsed);
  ProcessField() = absl::StrCat("process=", process, " ");
  return absl::OkStatus();
}

std::string FormatLogLine(absl::string_view event, LogFields fields) {
  std::string out = absl::StrCat("event=", event);
  for (const auto& [key, value] : fields) {
    absl::StrAppend(&out, " ", key, "=");
    AppendValue(out, value);
  }
  return out;
}

void LogDebug(absl::string_view event, LogFields fields) {
  Write(spdlog::level::debug, event, fields);
}
void LogInfo(absl::string_view event, LogFields fields) {
  Write(spdlog::level::info, event, fields);
}
void LogWarn(absl::string_view event, LogFields fields) {
  Write(spdlog::level::warn, event, fields);
}
void LogError(absl::string_view event, LogFields fields) {
  Write(spdlog::level::err, event, fields);
}

}  // namespace espalier
