#include <iostream>
#include <memory>

#include "absl/strings/str_join.h"
#include "client/cli/array_file.h"
#include "client/cli/commands.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

// Shape of a packed mask: rows of whole bytes.
std::vector<int64_t> PackedShape(const v1::ParameterHeader& header) {
  const auto& shape = header.parameter().shape();
  const int64_t rows = shape.empty() ? 1 : shape.Get(0);
  return {rows, rows == 0 ? 0 : header.total_bytes() / rows};
}

absl::StatusOr<int> Mask(const ArrayOptions& options) {
  ArraySource source;
  source.read = [&](Client& client, const std::string& run, const DownloadSink& sink) {
    v1::ReadMaskRequest request;
    request.set_name(run);
    request.set_parameter(options.parameter);
    return client.ReadMask(request, sink);
  };
  source.layout = [](const v1::ParameterHeader& header) { return ArrayLayout{"|u1", PackedShape(header)}; };
  ESPALIER_ASSIGN_OR_RETURN(const v1::ParameterHeader header, WriteArray(options, source));
  std::cerr << "mask of " << header.parameter().name() << " [" << absl::StrJoin(header.parameter().shape(), ", ")
            << "], version " << header.mask_version() << " -> " << options.output << "\n";
  return kExitOk;
}

}  // namespace

void AddMask(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("mask", "Gather the packed mask of one parameter into a .npy file");
  const auto options = std::make_shared<ArrayOptions>();
  AddArrayOptions(*command, *options);
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
