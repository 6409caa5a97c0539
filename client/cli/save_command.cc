#include <filesystem>
#include <iostream>
#include <memory>
#include <system_error>

#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/spec_options.h"
#include "client/cli/text.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  std::string run;
  std::string directory;
  bool overwrite = false;
  bool no_wait = false;
  uint64_t max_shard_size = 0;
  std::string format;
};

absl::StatusOr<int> Save(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string name, RunNameOf(options.run));
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  v1::SaveCheckpointRequest request;
  request.set_name(name);
  std::error_code ignored;
  request.set_path(std::filesystem::absolute(options.directory, ignored).lexically_normal().string());
  request.set_overwrite(options.overwrite);
  request.set_max_shard_bytes(static_cast<int64_t>(options.max_shard_size));
  request.set_format(FormatOf(options.format));
  ESPALIER_ASSIGN_OR_RETURN(v1::Operation operation, client->SaveCheckpoint(std::move(request)));
  if (options.no_wait) {
    std::cout << operation.name() << "\n";
    return kExitOk;
  }
  ESPALIER_ASSIGN_OR_RETURN(operation, FollowOperation(*client, operation));
  ESPALIER_RETURN_IF_ERROR(FromProto(operation.error()));
  std::cout << "saved " << operation.path() << " (" << Bytes(operation.bytes_total()) << ")\n";
  return kExitOk;
}

}  // namespace

void AddSave(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("save", "Save a running run's model as it is now");
  const auto options = std::make_shared<Options>();
  command->add_option("run", options->run, "Run: runs/ID, or ID")->required()->type_name("RUN");
  command->add_option("dir", options->directory, "Directory to write, as the workers see it")
      ->required()
      ->type_name("DIR");
  command->add_flag("--overwrite", options->overwrite, "Replace a directory that exists");
  AddMaxShardOption(*command, options->max_shard_size);
  AddFormatOption(*command, options->format);
  command->add_flag("--no-wait", options->no_wait,
                    "Print the operation's name and exit; `espalier cancel` takes it. Leaving does not end a save");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer("Example:\n  espalier save runs/7f3a /models/llama-50-draft");
  command->callback([options, &invocation] { invocation.body = [options] { return Save(*options); }; });
}

}  // namespace espalier::cli
