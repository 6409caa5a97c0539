#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/run_view.h"
#include "client/cli/text.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  int limit = 50;
  bool json = false;
};

constexpr size_t kReason = 60;

absl::StatusOr<int> Runs(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<v1::Run> runs, client->ListRuns(options.limit));
  if (options.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const v1::Run& run : runs) list.push_back(ToJson(run));
    std::cout << Pretty(list);
    return kExitOk;
  }
  Table table({"RUN", "STATE", ">UPDATES", ">SPARSITY", "CREATED", "MODEL", "WHY"});
  for (const v1::Run& run : runs) {
    const std::string created = google::protobuf::util::TimeUtil::ToString(
        google::protobuf::util::TimeUtil::SecondsToTimestamp(run.create_time().seconds()));
    const absl::Status error = FromProto(run.error());
    table.Add(
        {run.name(), StateName(run.state()), absl::StrCat(run.updates_done(), "/", run.updates_total()),
         Percent(run.sparsity().prunable_sparse(), run.sparsity().prunable()), created, run.model_path(),
         Truncate(error.ok() ? run.state_reason() : absl::StrCat(ReasonName(error), ": ", error.message()), kReason)});
  }
  std::cout << table.Render();
  if (runs.empty()) std::cerr << "no runs at " << client->address() << "\n";
  return kExitOk;
}

}  // namespace

void AddRuns(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("runs", "List runs, newest first");
  const auto options = std::make_shared<Options>();
  command->add_option("--limit", options->limit, "At most so many")
      ->check(CLI::Range(1, 1000000).description(""))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print the runs as JSON");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer("Example:\n  espalier runs --json | jq -r '.[] | select(.state == \"FAILED\") | .error.message'");
  command->callback([options, &invocation] { invocation.body = [options] { return Runs(*options); }; });
}

}  // namespace espalier::cli
