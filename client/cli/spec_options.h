#pragma once

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "espalier/v1/sparsification_service.pb.h"

namespace espalier::cli {

// The part of a command line that says what is to be done: recipe, model, output.
struct SpecOptions {
  std::string recipe;
  std::string model;
  std::string output;
  int workers = 1;
  bool hold = false;
  bool overwrite = false;
  bool ignore_stored_masks = false;
  uint64_t max_shard_size = 0;
};

// The options of `run` and `submit`.
void AddSpecOptions(CLI::App& command, SpecOptions& options, bool output_required);
void AddRecipeOption(CLI::App& command, std::string& recipe);
void AddModelOption(CLI::App& command, std::string& model);
// --max-shard-size, with units: 500MB, 5GB, 4GiB.
void AddMaxShardOption(CLI::App& command, uint64_t& bytes);

// Text of a recipe; "-" reads standard input. RECIPE_INVALID where it cannot be read. Of a longer file, which the
// coordinator refuses, no more than its limit and a byte is read.
absl::StatusOr<std::string> ReadRecipe(const std::string& path);
// For errors: the path, or <stdin>.
std::string RecipeName(const std::string& path);

// Reads the recipe; paths are made absolute, since the workers may run elsewhere.
absl::StatusOr<v1::RunSpec> MakeSpec(const SpecOptions& options);

}  // namespace espalier::cli
