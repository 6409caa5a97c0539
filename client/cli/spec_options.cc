#include "client/cli/spec_options.h"

#include <errno.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier::cli {
namespace {

constexpr size_t kMaxRecipe = 1 << 20;

std::string Absolute(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error).lexically_normal();
  return error ? path : absolute.string();
}

absl::StatusOr<std::string> ReadRecipe(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  const int error = errno;
  std::istream& in = path == "-" ? std::cin : file;
  std::error_code ignored;
  std::string text(kMaxRecipe + 1, '\0');
  if (!in || std::filesystem::is_directory(path, ignored) ||
      (in.read(text.data(), static_cast<std::streamsize>(text.size())).bad())) {
    return MakeError(v1::ERROR_REASON_RECIPE_INVALID,
                     absl::StrCat("cannot read the recipe ", path, ": ",
                                  std::generic_category().message(in ? EISDIR : error), "; give a YAML file"),
                     {{"field", "recipe"}});
  }
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

}  // namespace

void AddRecipesOption(CLI::App& command, std::vector<std::string>& recipes) {
  command.add_option("recipe", recipes, "Recipes (YAML), each run after the one before; - reads standard input")
      ->required()
      ->type_name("RECIPE");
}

void AddModelOption(CLI::App& command, std::string& model) {
  command.add_option("--model", model, "Checkpoint: a directory, or a safetensors file")->required()->type_name("PATH");
}

void AddMaxShardOption(CLI::App& command, uint64_t& bytes) {
  command.add_option("--max-shard-size", bytes, "Largest file of the output, e.g. 500MB or 4GiB [5GB]")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true).description(""))
      ->check(CLI::Range(uint64_t{0}, uint64_t{std::numeric_limits<int64_t>::max()}).description(""))
      ->type_name("SIZE");
}

void AddFormatOption(CLI::App& command, std::string& format) {
  command
      .add_option(
          "--format", format,
          "hf: whole tensors in model*.safetensors; dcp: the rows of each rank in shard-*.safetensors, as PyTorch DCP "
          "reads them [hf]")
      ->check(CLI::IsMember({"hf", "dcp"}))
      ->type_name("FORMAT");
}

v1::CheckpointFormat FormatOf(const std::string& format) {
  return format == "dcp"  ? v1::CHECKPOINT_FORMAT_DCP
         : format == "hf" ? v1::CHECKPOINT_FORMAT_HUGGING_FACE
                          : v1::CHECKPOINT_FORMAT_UNSPECIFIED;
}

void AddSpecOptions(CLI::App& command, SpecOptions& options, bool output_required) {
  AddRecipesOption(command, options.recipes);
  AddModelOption(command, options.model);
  CLI::Option* output =
      command.add_option("--output", options.output, "Directory that will hold the pruned checkpoint")
          ->type_name("DIR");
  if (output_required) output->required();
  command.add_option("--workers", options.workers, "Ranks over which the model is sharded")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N")
      ->capture_default_str();
  command.add_flag("--hold", options.hold,
                   "Keep the run after its last stage, for reports, parameters and saves, until `espalier finish`");
  command.add_flag("--overwrite", options.overwrite, "Replace an output directory that exists");
  command.add_flag("--ignore-stored-masks", options.ignore_stored_masks,
                   "Do not continue from masks that the checkpoint carries");
  AddMaxShardOption(command, options.max_shard_size);
  AddFormatOption(command, options.format);
}

absl::StatusOr<std::vector<v1::RecipeText>> ReadRecipes(const std::vector<std::string>& paths) {
  if (std::count(paths.begin(), paths.end(), "-") > 1) {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID, "recipe: standard input can only be one of the recipes",
                     {{"field", "recipe"}});
  }
  std::vector<v1::RecipeText> out;
  for (const std::string& path : paths) {
    v1::RecipeText& text = out.emplace_back();
    ESPALIER_ASSIGN_OR_RETURN(*text.mutable_recipe(), ReadRecipe(path));
    text.set_recipe_name(path == "-" ? "<stdin>" : path);
  }
  return out;
}

absl::StatusOr<v1::RunSpec> MakeSpec(const SpecOptions& options) {
  v1::RunSpec spec;
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<v1::RecipeText> recipes, ReadRecipes(options.recipes));
  spec.set_recipe(recipes[0].recipe());
  spec.set_recipe_name(recipes[0].recipe_name());
  spec.mutable_then()->Assign(recipes.begin() + 1, recipes.end());
  spec.set_model_path(Absolute(options.model));
  spec.set_output_path(Absolute(options.output));
  spec.set_worker_kind(v1::WORKER_KIND_CHECKPOINT);
  spec.set_world_size(options.workers);
  spec.set_hold(options.hold);
  spec.set_overwrite(options.overwrite);
  spec.set_ignore_stored_masks(options.ignore_stored_masks);
  spec.set_max_shard_bytes(static_cast<int64_t>(options.max_shard_size));
  spec.set_output_format(FormatOf(options.format));
  return spec;
}

}  // namespace espalier::cli
