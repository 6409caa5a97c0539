#include "proto/support/service_options.h"

#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

absl::Status ConfigInvalid(const std::string& file, absl::string_view what) {
  return MakeError(v1::ERROR_REASON_REQUEST_INVALID, absl::StrCat("--config: ", file, ": ", what),
                   {{"field", "config"}});
}

}  // namespace

void AddServiceOptions(CLI::App& app, ServiceOptions& options) {
  app.add_option("--stop-grace", options.stop_grace,
                 "What SIGTERM or SIGINT finds under way has this long to end; a second signal ends at once")
      ->capture_default_str();
  app.add_option("--config", options.config, "File with further options, `state-dir = \"/var/lib/espalier\"` a line");
  app.add_option("--log-level", options.log_level, "debug, info, warn or error")->capture_default_str();
  app.add_option("--log-format", options.log_format, "text, as key=value, or json, an object a line")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  for (CLI::Option* option : app.get_options()) {
    const std::string name = option->get_single_name();
    if (name == "help" || name == "version") continue;
    option->envname(absl::StrCat("ESPALIER_", absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}}))));
  }
}

absl::Status ReadConfigFile(CLI::App& app, const ServiceOptions& options) {
  if (options.config.empty()) return absl::OkStatus();
  std::ifstream file(options.config);
  if (!file) return ConfigInvalid(options.config, "cannot be read");
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(file)) {
      CLI::Option* option = item.parents.empty() ? app.get_option_no_throw("--" + item.name) : nullptr;
      if (option == nullptr || item.name == "config" || item.name == "help" || item.name == "version") {
        return ConfigInvalid(options.config, absl::StrCat("'", item.fullname(), "' is no option; --help lists them"));
      }
      if (option->count() > 0) continue;
      for (const std::string& value : item.inputs) option->add_result(value);
      option->run_callback();
    }
  } catch (const CLI::Error& error) {
    return ConfigInvalid(options.config, error.what());
  }
  return absl::OkStatus();
}

}  // namespace espalier
