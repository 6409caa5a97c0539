#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/plan_output.h"
#include "client/cli/spec_options.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "server/recipe/planner.h"
#include "worker/checkpoint/checkpoint.h"

namespace espalier::cli {
namespace {

struct Options {
  std::vector<std::string> recipes;
  std::string model;
  std::string worker_kind = "checkpoint";
  int64_t steps_per_epoch = 0;
  bool ignore_stored_masks = false;
  bool json = false;
};

absl::StatusOr<int> PrintPlan(const Options& options) {
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<v1::RecipeText> recipes, ReadRecipes(options.recipes));
  CheckpointOptions checkpoint_options;
  checkpoint_options.ignore_stored_masks = options.ignore_stored_masks;
  ESPALIER_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.model, checkpoint_options));
  PlanOptions plan_options;
  plan_options.worker_kind = options.worker_kind == "attached" ? v1::WORKER_KIND_ATTACHED : v1::WORKER_KIND_CHECKPOINT;
  plan_options.optimizer_steps_per_epoch = options.steps_per_epoch;
  const v1::ModelDescription& model = checkpoint.description();
  ESPALIER_ASSIGN_OR_RETURN(v1::Plan plan, MakePlan(recipes, model, plan_options));
  if (const absl::Status runnable = CheckRunnable(plan, plan_options.worker_kind); !runnable.ok()) {
    plan.add_warnings(std::string(runnable.message()));
  }
  std::cout << (options.json ? Pretty(PlanJson(plan, model, recipes[0].recipe_name(), checkpoint.path()))
                             : PlanText(plan, model, recipes[0].recipe_name(), checkpoint.path()));
  return kExitOk;
}

}  // namespace

void AddPlan(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("plan", "Show what a recipe would prune of a model, without any server");
  const auto options = std::make_shared<Options>();
  AddRecipesOption(*command, options->recipes);
  AddModelOption(*command, options->model);
  command->add_option("--worker-kind", options->worker_kind, "Workers it is planned for")
      ->check(CLI::IsMember({"checkpoint", "attached"}))
      ->type_name("KIND")
      ->capture_default_str();
  command
      ->add_option("--steps-per-epoch", options->steps_per_epoch,
                   "Optimizer steps of an epoch, for train stages whose times are in epochs")
      ->check(CLI::NonNegativeNumber.description(""))
      ->type_name("N");
  command->add_flag("--ignore-stored-masks", options->ignore_stored_masks,
                    "Do not look at masks that the checkpoint carries");
  command->add_flag("--json", options->json, "Print the plan as JSON");
  command->footer(
      "Example:\n  espalier plan recipe.yaml --model DIR --json | jq .stages[].modifiers[].parameters[].name");
  command->callback([options, &invocation] { invocation.body = [options] { return PrintPlan(*options); }; });
}

}  // namespace espalier::cli
