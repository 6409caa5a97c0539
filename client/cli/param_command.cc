#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/array_file.h"
#include "client/cli/commands.h"
#include "client/cli/npy.h"
#include "client/cli/text.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

struct Options {
  ArrayOptions array;
  bool float32 = false;
};

absl::StatusOr<int> Param(const Options& options) {
  NpyType type;
  bool widen = false;
  ArraySource source;
  source.read = [&](Client& client, const std::string& run, const DownloadSink& sink) {
    v1::ReadParameterRequest request;
    request.set_name(run);
    request.set_parameter(options.array.parameter);
    return client.ReadParameter(request, sink);
  };
  source.layout = [&](const v1::ParameterHeader& header) -> absl::StatusOr<ArrayLayout> {
    const v1::Dtype dtype = header.parameter().dtype();
    ESPALIER_ASSIGN_OR_RETURN(type, NpyTypeOf(dtype));
    widen = options.float32 && dtype == v1::DTYPE_BF16;
    if (options.float32 && !widen && dtype != v1::DTYPE_F32) {
      return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                       absl::StrCat("--float32 widens BF16, and ", header.parameter().name(), " is ",
                                    v1::Dtype_Name(dtype).substr(6), "; leave it out"),
                       {{"field", "float32"}});
    }
    const auto& shape = header.parameter().shape();
    return ArrayLayout{widen ? "<f4" : type.descr, {shape.begin(), shape.end()}};
  };
  std::string odd;  // half an element
  if (options.float32) {
    source.convert = [&](absl::string_view data) {
      if (!widen) return std::string(data);
      odd.append(data.data(), data.size());
      const size_t even = odd.size() / 2 * 2;
      std::string wide = WidenBf16(absl::string_view(odd).substr(0, even));
      odd.erase(0, even);
      return wide;
    };
  }
  ESPALIER_ASSIGN_OR_RETURN(const v1::ParameterHeader header, WriteArray(options.array, source));
  std::cerr << header.parameter().name() << " [" << absl::StrJoin(header.parameter().shape(), ", ") << "] "
            << v1::Dtype_Name(header.parameter().dtype()).substr(6) << ", " << Bytes(header.total_bytes())
            << ", mask version " << header.mask_version() << " -> " << options.array.output << "\n";
  if (!type.note.empty() && !widen) std::cerr << "note: " << type.note << "\n";
  return kExitOk;
}

}  // namespace

void AddParam(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("param", "Gather one parameter of a run's live model into a .npy file");
  const auto options = std::make_shared<Options>();
  AddArrayOptions(*command, options->array);
  command->add_flag("--float32", options->float32,
                    "Write BF16 as the float32 values they are; without it as their 16 bits (uint16)");
  AddCoordinatorOption(*command, options->array.coordinator);
  command->footer(
      "Example:\n"
      "  espalier param runs/7f3a model.layers.0.mlp.down_proj.weight -o down.npy --float32");
  command->callback([options, &invocation] { invocation.body = [options] { return Param(*options); }; });
}

}  // namespace espalier::cli
