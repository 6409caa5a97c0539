#pragma once

// A recipe as it was written, before it meets a model: every type checked, every eval() evaluated.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "espalier/v1/plan.pb.h"
#include "server/recipe/problems.h"
#include "server/recipe/rational.h"

namespace espalier {

// A moment, or a length of time.
struct RecipeTime {
  enum class Unit { kEpochs, kSteps };

  Unit unit = Unit::kEpochs;
  Rational value;     // not negative
  bool open = false;  // -1: no end
  Mark mark;
  std::string field;
};

// An entry of `targets` or `ignore`.
struct TargetEntry {
  std::string text;
  Mark mark;
  std::string field;
};

enum class ScheduleKind { kLinear, kCubic, kPolynomial, kMultiStep, kConstant };

struct RecipeSchedule {
  ScheduleKind kind = ScheduleKind::kCubic;
  int exponent = 2;                                     // of kPolynomial
  std::vector<std::pair<RecipeTime, Rational>> points;  // of kMultiStep, as written
};

struct RecipeModifier {
  std::string type;  // class name
  Mark mark;
  std::string field;  // path of the modifier itself
  v1::SelectionMethod method = v1::SELECTION_METHOD_UNSPECIFIED;
  v1::SelectionRule rule = v1::SELECTION_RULE_EXACT;
  // N elements kept of M; 0:0 unstructured.
  int keep = 0;
  int group = 0;
  std::vector<TargetEntry> targets;
  std::vector<TargetEntry> ignore;
  Rational init_sparsity;
  // Absent for CONSTANT, for N:M, and where calibration decides for each layer.
  std::optional<Rational> final_sparsity;
  Mark sparsity_mark;
  std::string sparsity_field;
  RecipeSchedule schedule;
  // Of train stages. No `end` or an open one: until the training ends.
  std::optional<RecipeTime> start;
  std::optional<RecipeTime> end;
  std::optional<RecipeTime> update_frequency;
  bool monotone = true;
  bool allow_empty = false;
  bool leave_enabled = true;

  bool structured() const { return group != 0; }
  bool calibrated() const { return method == v1::SELECTION_METHOD_WANDA || method == v1::SELECTION_METHOD_SPARSE_GPT; }
};

struct RecipeStage {
  std::string name;
  Mark mark;
  std::string field;
  v1::RunType run_type = v1::RUN_TYPE_UNSPECIFIED;  // never unspecified after parsing
  bool run_type_inferred = false;
  std::vector<RecipeModifier> modifiers;
};

struct Recipe {
  std::vector<RecipeStage> stages;
  // "7:9: prune_stage...start: has no effect in a one-shot stage"
  std::vector<std::string> warnings;
};

}  // namespace espalier
