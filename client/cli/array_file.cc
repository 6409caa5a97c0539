#include "client/cli/array_file.h"

#include <memory>

#include "client/cli/commands.h"
#include "client/cli/file_writer.h"
#include "client/cli/npy.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {

void AddArrayOptions(CLI::App& command, ArrayOptions& options) {
  command.add_option("run", options.run, "Run: runs/ID, or ID")->required()->type_name("RUN");
  command.add_option("name", options.parameter, "Parameter, or an alias of it")->required()->type_name("NAME");
  command.add_option("-o,--output", options.output, "File to write")->required()->type_name("FILE");
}

absl::StatusOr<v1::ParameterHeader> WriteArray(const ArrayOptions& options, const ArraySource& source) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string run, RunNameOf(options.run));
  ESPALIER_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(options.coordinator));
  std::unique_ptr<FileWriter> file;
  v1::ParameterHeader header;
  DownloadSink sink;
  sink.header = [&](const v1::ParameterHeader& given) -> absl::Status {
    header = given;
    ESPALIER_ASSIGN_OR_RETURN(const ArrayLayout layout, source.layout(header));
    ESPALIER_ASSIGN_OR_RETURN(file, FileWriter::Open(options.output));
    return file->Write(NpyHeader(layout.descr, layout.shape));
  };
  sink.data = [&](absl::string_view data) {
    return source.convert ? file->Write(source.convert(data)) : file->Write(data);
  };
  ESPALIER_RETURN_IF_ERROR(source.read(*client, run, sink));
  ESPALIER_RETURN_IF_ERROR(file->Commit());
  return header;
}

}  // namespace espalier::cli
