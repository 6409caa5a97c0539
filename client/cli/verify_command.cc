#include <unistd.h>

#include <iostream>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/progress.h"
#include "client/cli/terminal.h"
#include "client/cli/text.h"
#include "proto/support/clock.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/verify.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string directory;
  bool json = false;
};

absl::StatusOr<int> Verify(const Options& options) {
  const Terminal terminal = DetectTerminal(STDERR_FILENO);
  Progress progress(std::cerr, terminal, [] { return SystemClock().Monotonic(); });
  const auto step = [&](int64_t done, int64_t total) {
    // A pipe gets the result alone.
    if (terminal.interactive) progress.Step("verify", done, total, "bytes");
  };
  ESPALIER_ASSIGN_OR_RETURN(const VerifyResult result, VerifyDirectory(options.directory, {}, step));
  progress.End(true);
  if (options.json) {
    nlohmann::ordered_json differences = nlohmann::ordered_json::array();
    for (const Difference& difference : result.differences) {
      differences.push_back({{"file", difference.file}, {"what", difference.what}});
    }
    std::cout << Pretty({{"intact", result.differences.empty()},
                         {"files", result.files},
                         {"bytes", result.bytes},
                         {"parameters", result.parameters},
                         {"differences", differences}});
  } else {
    for (const Difference& difference : result.differences) {
      std::cout << difference.file << ": " << difference.what << "\n";
    }
    std::cout << options.directory << ": " << Count(result.files, "file") << ", " << Bytes(result.bytes) << ", "
              << Count(result.parameters, "parameter") << ": "
              << (result.differences.empty() ? "as written"
                                             : Count(static_cast<int64_t>(result.differences.size()), "difference"))
              << "\n";
  }
  return result.differences.empty() ? kExitOk : kExitCorrupt;
}

}  // namespace

void AddVerify(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "verify", "Check an output's files, checksums, report and masks against its bytes; exit 4 where they differ");
  const auto options = std::make_shared<Options>();
  command->add_option("dir", options->directory, "Output of a run or save")->required()->type_name("DIR");
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->footer("Example:\n  espalier verify pruned && rsync -a pruned/ host:/models/pruned/");
  command->callback([options, &invocation] { invocation.body = [options] { return Verify(*options); }; });
}

}  // namespace espalier::cli
