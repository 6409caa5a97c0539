#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/lib/client.h"

namespace espalier::cli {

// What `param` and `mask` are asked for: an array of a run's live model, and the .npy file for it.
struct ArrayOptions {
  std::string coordinator;
  std::string run;
  std::string parameter;
  std::string output;
};

// Positional RUN and NAME, and -o.
void AddArrayOptions(CLI::App& command, ArrayOptions& options);

// How the array lies in the file.
struct ArrayLayout {
  std::string descr;
  std::vector<int64_t> shape;
};

struct ArraySource {
  // Starts the download into the sink.
  std::function<absl::Status(Client& client, const std::string& run, const DownloadSink& sink)> read;
  // Once, before the data.
  std::function<absl::StatusOr<ArrayLayout>(const v1::ParameterHeader& header)> layout;
  // What is written in the place of a piece of data; pieces may end anywhere. Without: the data.
  std::function<std::string(absl::string_view data)> convert;
};

// Writes the array; the file appears when it is complete. What the array was of. Errors: those of the client,
// REQUEST_INVALID, STORAGE_UNWRITABLE, and what `layout` says.
absl::StatusOr<v1::ParameterHeader> WriteArray(const ArrayOptions& options, const ArraySource& source);

}  // namespace espalier::cli
