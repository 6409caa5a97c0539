#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "espalier/v1/sparsification_service.pb.h"

namespace espalier::cli {

// The part of a command line that says what is to be done: recipe, model, output.
struct SpecOptions {
  std::vector<std::string> recipes;
  std::string model;
  std::string output;
  int workers = 1;
  bool hold = false;
  bool overwrite = false;
  bool ignore_stored_masks = false;
  uint64_t max_shard_size = 0;
  std::string format;
};

// The options of `run` and `submit`.
void AddSpecOptions(CLI::App& command, SpecOptions& options, bool output_required);
// One recipe or more, chained in this order.
void AddRecipesOption(CLI::App& command, std::vector<std::string>& recipes);
void AddModelOption(CLI::App& command, std::string& model);
// --max-shard-size, with units: 500MB, 5GB, 4GiB.
void AddMaxShardOption(CLI::App& command, uint64_t& bytes);

// --format hf|dcp.
void AddFormatOption(CLI::App& command, std::string& format);
v1::CheckpointFormat FormatOf(const std::string& format);

// Texts and names of recipes; "-" reads standard input. RECIPE_INVALID where one cannot be read, REQUEST_INVALID where two
// would read standard input. Of a longer file, which the coordinator refuses, no more than its limit and a byte is read.
// REQUIRES: not empty.
absl::StatusOr<std::vector<v1::RecipeText>> ReadRecipes(const std::vector<std::string>& paths);

// Reads the recipes; paths are made absolute, since the workers may run elsewhere.
absl::StatusOr<v1::RunSpec> MakeSpec(const SpecOptions& options);

}  // namespace espalier::cli
