#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/text.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  bool json = false;
};

absl::StatusOr<int> Workers(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client->ListWorkers());
  if (options.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const v1::Worker& worker : workers) list.push_back(ToJson(worker));
    std::cout << Pretty(list);
    return kExitOk;
  }
  Table table({"WORKER", "STATE", "RUN", ">RANK", "HOST", "DEVICE", ">HEARTBEAT", "ACTIVITY"});
  for (const v1::Worker& worker : workers) {
    const int64_t nanos = google::protobuf::util::TimeUtil::DurationToNanoseconds(worker.since_heartbeat());
    table.Add({worker.name(), std::string(absl::StripPrefix(v1::Worker::State_Name(worker.state()), "STATE_")),
               worker.run().empty() ? "-" : worker.run(), worker.rank() < 0 ? "-" : absl::StrCat(worker.rank()),
               worker.host(), worker.device(), absl::StrCat(Seconds(absl::Nanoseconds(nanos)), " ago"),
               worker.activity().empty() ? worker.state_reason() : worker.activity()});
  }
  std::cout << table.Render();
  if (workers.empty())
    std::cerr << "no workers at " << client->address() << "; start espalier-worker --coordinator " << client->address()
              << "\n";
  return kExitOk;
}

}  // namespace

void AddWorkers(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("workers", "List workers and what they do");
  const auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "Print the workers as JSON");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer("Example:\n  espalier workers --coordinator 10.0.0.7:4770");
  command->callback([options, &invocation] { invocation.body = [options] { return Workers(*options); }; });
}

}  // namespace espalier::cli
