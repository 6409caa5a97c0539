#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/file_writer.h"
#include "client/cli/npy.h"
#include "client/cli/text.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  std::string coordinator;
  std::string run;
  std::string parameter;
  std::string output;
  bool float32 = false;
};

absl::StatusOr<int> Param(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string name, RunNameOf(options.run));
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  v1::ReadParameterRequest request;
  request.set_name(name);
  request.set_parameter(options.parameter);
  std::unique_ptr<FileWriter> file;
  v1::ParameterHeader header;
  NpyType type;
  bool widen = false;
  DownloadSink sink;
  sink.header = [&](const v1::ParameterHeader& given) -> absl::Status {
    header = given;
    const v1::Dtype dtype = header.parameter().dtype();
    ESPALIER_ASSIGN_OR_RETURN(type, NpyTypeOf(dtype));
    widen = options.float32 && dtype == v1::DTYPE_BF16;
    if (options.float32 && !widen && dtype != v1::DTYPE_F32) {
      return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                       absl::StrCat("--float32 widens BF16, and ", header.parameter().name(), " is ",
                                    v1::Dtype_Name(dtype).substr(6), "; leave it out"),
                       {{"field", "float32"}});
    }
    ESPALIER_ASSIGN_OR_RETURN(file, FileWriter::Open(options.output));
    const auto& shape = header.parameter().shape();
    return file->Write(NpyHeader(widen ? "<f4" : type.descr, std::vector<int64_t>(shape.begin(), shape.end())));
  };
  // Chunks may end inside an element.
  std::string odd;
  sink.data = [&](absl::string_view data) -> absl::Status {
    if (!widen) return file->Write(data);
    odd.append(data.data(), data.size());
    const size_t even = odd.size() / 2 * 2;
    ESPALIER_RETURN_IF_ERROR(file->Write(WidenBf16(absl::string_view(odd).substr(0, even))));
    odd.erase(0, even);
    return absl::OkStatus();
  };
  ESPALIER_RETURN_IF_ERROR(client->ReadParameter(request, sink));
  ESPALIER_RETURN_IF_ERROR(file->Commit());
  std::cerr << header.parameter().name() << " [" << absl::StrJoin(header.parameter().shape(), ", ") << "] "
            << v1::Dtype_Name(header.parameter().dtype()).substr(6) << ", " << Bytes(header.total_bytes())
            << ", mask version " << header.mask_version() << " -> " << options.output << "\n";
  if (!type.note.empty() && !widen) std::cerr << "note: " << type.note << "\n";
  return kExitOk;
}

}  // namespace

void AddParam(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("param", "Gather one parameter of a run's live model into a .npy file");
  const auto options = std::make_shared<Options>();
  command->add_option("run", options->run, "Run: runs/ID, or ID")->required()->type_name("RUN");
  command->add_option("name", options->parameter, "Parameter, or an alias of it")->required()->type_name("NAME");
  command->add_option("-o,--output", options->output, "File to write")->required()->type_name("FILE");
  command->add_flag("--float32", options->float32,
                    "Write BF16 as the float32 values they are; without it as their 16 bits (uint16)");
  AddCoordinatorOption(*command, options->coordinator);
  command->footer(
      "Example:\n"
      "  espalier param runs/7f3a model.layers.0.mlp.down_proj.weight -o down.npy --float32");
  command->callback([options, &invocation] { invocation.body = [options] { return Param(*options); }; });
}

}  // namespace espalier::cli
