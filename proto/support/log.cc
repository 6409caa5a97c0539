#include "proto/support/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

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
struct Style {
  std::string process;
  bool json = false;
};
Style& TheStyle() {
  static Style* const style = new Style;
  return *style;
}

std::string Quoted(absl::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Write(spdlog::level::level_enum level, absl::string_view event, LogFields fields) {
  if (!Logger().should_log(level)) return;
  const Style& style = TheStyle();
  Logger().log(level, "{}",
               style.json ? absl::StrCat("\"process\":", Quoted(style.process), ",", FormatJsonFields(event, fields))
                          : absl::StrCat(style.process.empty() ? "" : "process=", style.process,
                                         style.process.empty() ? "" : " ", FormatLogLine(event, fields)));
}

}  // namespace

absl::Status InitLog(absl::string_view process, absl::string_view level, absl::string_view format) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                     absl::StrCat("log level \"", level, "\" is not one of debug, info, warn, error, off"));
  }
  if (format != "text" && format != "json") {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                     absl::StrCat("log format \"", format, "\" is not one of text, json"));
  }
  Logger().set_level(parsed);
  TheStyle() = {std::string(process), format == "json"};
  if (format == "json") {
    Logger().set_pattern("{\"time\":\"%Y-%m-%dT%H:%M:%S.%eZ\",\"level\":\"%l\",%v}", spdlog::pattern_time_type::utc);
  }
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

std::string FormatJsonFields(absl::string_view event, LogFields fields) {
  std::string out = absl::StrCat("\"event\":", Quoted(event));
  for (const auto& [key, value] : fields) absl::StrAppend(&out, ",", Quoted(key), ":", Quoted(value));
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
