#include <iostream>
#include <memory>

#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/file_writer.h"
#include "client/cli/npy.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  std::string run;
  std::string parameter;
  std::string output;
};

// Shape of a packed mask: rows of whole bytes.
std::vector<int64_t> PackedShape(const v1::ParameterHeader& header) {
  const auto& shape = header.parameter().shape();
  const int64_t rows = shape.empty() ? 1 : shape.Get(0);
  return {rows, rows == 0 ? 0 : header.total_bytes() / rows};
}

absl::StatusOr<int> Mask(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string name, RunNameOf(options.run));
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  v1::ReadMaskRequest request;
  request.set_name(name);
  request.set_parameter(options.parameter);
  std::unique_ptr<FileWriter> file;
  v1::ParameterHeader header;
  DownloadSink sink;
  sink.header = [&](const v1::ParameterHeader& given) -> absl::Status {
    header = given;
    ESPALIER_ASSIGN_OR_RETURN(file, FileWriter::Open(options.output));
    return file->Write(NpyHeader("|u1", PackedShape(header)));
  };
  sink.data = [&](absl::string_view data) { return file->Write(data); };
  ESPALIER_RETURN_IF_ERROR(client->ReadMask(request, sink));
  ESPALIER_RETURN_IF_ERROR(file->Commit());
  std::cerr << "mask of " << header.parameter().name() << " [" << absl::StrJoin(header.parameter().shape(), ", ")
            << "], version " << header.mask_version() << " -> " << options.output << "\n";
  return kExitOk;
}

}  // namespace

void AddMask(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("mask", "Gather the packed mask of one parameter into a .npy file");
  const auto options = std::make_shared<Options>();
  command->add_option("run", options->run, "Run: runs/ID, or ID")->required()->type_name("RUN");
  command->add_option("name", options->parameter, "Parameter, or an alias of it")->required()->type_name("NAME");
  command->add_option("-o,--output", options->output, "File to write")->required()->type_name("FILE");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer(
      "The array is uint8, one row of whole bytes for each row of the parameter, least significant bit first, 1 = "
      "keep:\n"
      "np.unpackbits(a, axis=1, bitorder='little')[:, :row_length].\n\n"
      "Example:\n"
      "  espalier mask runs/7f3a model.layers.0.mlp.down_proj.weight -o down-mask.npy");
  command->callback([options, &invocation] { invocation.body = [options] { return Mask(*options); }; });
}

}  // namespace espalier::cli
