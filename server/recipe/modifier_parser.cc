#include "server/recipe/modifier_parser.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/recipe/field_reader.h"
#include "server/recipe/modifier_schema.h"

namespace espalier {
namespace {

constexpr int64_t kMaxGroup = 1024;
constexpr int64_t kMaxExponent = 8;
constexpr size_t kMaxPoints = 10'000;

using Names = std::vector<std::string>;

// In the order of ScheduleKind.
const Names& ScheduleNames() {
  static const auto* names = new Names{"linear", "cubic", "polynomial", "multi_step", "constant"};
  return *names;
}

// Reads one modifier; one object a modifier.
class Parser {
 public:
  Parser(const ModifierPlace& place, const YamlNode& value, Variables& variables, Problems& problems,
         std::vector<std::string>& warnings)
      : place_(place),
        variables_(variables),
        problems_(problems),
        warnings_(warnings),
        fields_(value, place.field, variables, problems) {}

  RecipeModifier Run() {
    const ModifierSchema& schema = *FindModifierSchema(place_.type);
    out_.type = place_.type;
    out_.mark = place_.mark;
    out_.field = place_.field;
    out_.method = schema.method;
    suggested_ = fields_.RefuseOthers(schema.fields, place_.type);
    Targets();
    Structure();
    Times();
    if (out_.calibrated()) {
      Calibration();
    } else if (out_.method != v1::SELECTION_METHOD_CONSTANT) {
      Magnitude();
    }
    return std::move(out_);
  }

 private:
  bool oneshot() const { return place_.run_type == v1::RUN_TYPE_ONESHOT; }

  // A field that is needed. Silent where a misspelt form of it, or of its other name, is reported.
  void Missing(absl::string_view name, absl::string_view meaning, absl::string_view alias = "") {
    if (absl::c_linear_search(suggested_, name) || absl::c_linear_search(suggested_, alias)) return;
    problems_.Add(place_.mark, fields_.FieldOf(name), absl::StrCat("is missing: ", meaning));
  }

  void NoEffect(absl::string_view name, absl::string_view where) {
    if (!fields_.Has(name)) return;
    const Mark mark = fields_.MarkOf(name);
    warnings_.push_back(absl::StrCat(mark.line, ":", mark.column, ": ", Shorten(fields_.FieldOf(name), 200),
                                     ": has no effect ", where));
  }

  // Of two names of one field the one that is given.
  absl::string_view OneOf(absl::string_view name, absl::string_view alias) {
    if (!fields_.Has(alias)) return name;
    if (fields_.Has(name)) fields_.Add(alias, absl::StrCat("says the same as ", Quote(name), "; keep one of them"));
    return alias;
  }

  void Targets() {
    out_.targets = fields_.Texts("targets");
    out_.ignore = fields_.Texts("ignore");
    const YamlNode* given = fields_.Find("targets");
    if (given == nullptr && out_.calibrated()) {
      out_.targets.push_back({"Linear", place_.mark, place_.field});
    } else if (given == nullptr) {
      Missing("targets", "what to prune, e.g. [\"re:.*_proj.weight\"]");
    } else if (given->sequence() && given->children.empty()) {
      fields_.Add("targets", "is an empty list, so nothing would be pruned");
    }
  }

  void Structure() {
    const std::optional<std::string> text = fields_.Text("mask_structure");
    const std::optional<std::string> counts = fields_.Choice("nm_counts", {"kept", "zeroed"});
    if (!text || *text == "unstructured" || *text == "0:0") {
      if (counts) fields_.Add("nm_counts", "means nothing without an N:M `mask_structure`");
      return;
    }
    structure_wrong_ = true;
    const std::vector<absl::string_view> parts = absl::StrSplit(*text, ':');
    int64_t n = 0;
    int64_t m = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &n) || !absl::SimpleAtoi(parts[1], &m)) {
      fields_.Add("mask_structure",
                  absl::StrCat("is ", Quote(*text), ", and must be `unstructured` or N:M, e.g. `2:4`"),
                  ClosestName(*text, {"unstructured"}));
      return;
    }
    if (n < 1 || n >= m || m > kMaxGroup) {
      fields_.Add("mask_structure", absl::StrCat("is ", Quote(*text), ", and N:M needs 1 <= N < M <= ", kMaxGroup));
      return;
    }
    if (out_.calibrated() && !counts && 2 * n != m) {
      fields_.Add("mask_structure", absl::StrCat("is ", Quote(*text), ", which some tools read as ", n, " of ", m,
                                                 " zeroed and others as ", n, " of ", m,
                                                 " kept; say which with `nm_counts: zeroed` or `nm_counts: kept`"));
      return;
    }
    structure_wrong_ = false;
    out_.keep = static_cast<int>(counts == "zeroed" ? m - n : n);
    out_.group = static_cast<int>(m);
  }

  void Times() {
    // SparseML writes `start: -1` for what runs once.
    out_.start = fields_.Time("start", oneshot());
    out_.end = fields_.Time("end", true);
    const absl::string_view frequency = OneOf("update_frequency", "update");
    out_.update_frequency = fields_.Time(frequency, oneshot());
    if (oneshot()) {
      for (const absl::string_view name : {"start", "end", "update_frequency", "update"}) {
        NoEffect(name, "in a one-shot stage");
      }
      return;
    }
    if (out_.calibrated()) {
      problems_.Add(place_.mark, place_.field,
                    absl::StrCat("prunes once and cannot stand in ", StageKind(),
                                 "; move it into a stage with `run_type: oneshot`"));
    } else if (out_.method == v1::SELECTION_METHOD_CONSTANT || out_.structured()) {
      NoEffect(frequency, "on a mask that is made once");
    } else if (!fields_.Has("end")) {
      Missing("end", absl::StrCat("when `final_sparsity` is reached in ", StageKind()));
    } else if (out_.end && out_.end->open) {
      fields_.Add("end", "is -1, and a schedule without an end never reaches `final_sparsity`");
    }
    if (out_.update_frequency && out_.update_frequency->value.zero()) {
      fields_.Add(frequency, "is 0, and must be positive; leave it out to update at every step");
    }
  }

  std::string StageKind() const {
    return absl::StrCat("a train stage",
                        place_.run_type_inferred ? " (without `run_type`, a stage of attached workers is one)" : "");
  }

  void Magnitude() {
    if (fields_.Bool("apply_globally").value_or(false)) out_.method = v1::SELECTION_METHOD_GLOBAL_MAGNITUDE;
    out_.monotone = fields_.Bool("monotone").value_or(true);
    out_.allow_empty = fields_.Bool("allow_empty").value_or(false);
    out_.leave_enabled = fields_.Bool("leave_enabled").value_or(true);
    if (fields_.Choice("compat", {"sparseml"})) out_.rule = v1::SELECTION_RULE_SPARSEML;
    const absl::string_view name = OneOf("final_sparsity", "sparsity");
    FinalSparsity(name);
    const std::optional<Rational> init = fields_.Sparsity("init_sparsity");
    out_.init_sparsity = init.value_or(Rational(0));
    Schedule();
    const bool once = oneshot() || out_.structured();
    for (const absl::string_view field : {"init_sparsity", "update_scheduler", "scheduler_args"}) {
      if (once) NoEffect(field, oneshot() ? "in a one-shot stage" : "on a mask that is made once");
    }
    if (oneshot()) NoEffect("leave_enabled", "in a one-shot stage");
    if (out_.structured()) {
      NOfM(name);
    } else if (!fields_.Has(name) && !structure_wrong_) {
      Missing("final_sparsity", "the share of weights that become zero, from 0 to 1", "sparsity");
    } else if (!once && out_.monotone && init && out_.final_sparsity && *init > *out_.final_sparsity) {
      fields_.Add("init_sparsity",
                  absl::StrCat("is ", init->ToString(), ", more than the final ", out_.final_sparsity->ToString(),
                               ", and masks only grow unless `monotone: false` is given"));
    }
  }

  void FinalSparsity(absl::string_view name) {
    out_.final_sparsity = fields_.Sparsity(name);
    out_.sparsity_mark = fields_.MarkOf(name);
    out_.sparsity_field = fields_.FieldOf(name);
  }

  // What N:M leaves to say, and what would contradict it.
  void NOfM(absl::string_view name) {
    const std::string says = absl::StrCat(out_.keep, " of every ", out_.group, " are kept");
    if (out_.method == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE) {
      fields_.Add("mask_structure", "an N:M mask is made row by row and cannot be global");
    }
    if (out_.rule == v1::SELECTION_RULE_SPARSEML) fields_.Add("compat", "means nothing for an N:M mask");
    if (!out_.final_sparsity) return;
    const Rational wanted = *Rational::Of(out_.group - out_.keep, out_.group);
    const Rational zeroed = *Rational::Of(out_.keep, out_.group);
    if (wanted.Round(Rational::kPlaces) == out_.final_sparsity->Round(Rational::kPlaces)) {
      out_.final_sparsity.reset();
      return;
    }
    std::string hint = "; leave the sparsity out, or change one of the two";
    if (zeroed.Round(Rational::kPlaces) == out_.final_sparsity->Round(Rational::kPlaces)) {
      hint = "; where N is meant to be the zeroed ones, say `nm_counts: zeroed`";
    }
    fields_.Add(name, absl::StrCat("is ", out_.final_sparsity->ToString(), ", but of `mask_structure` ", says,
                                   ", a sparsity of ", wanted.ToString(), hint));
  }

  void Schedule() {
    const std::string kind = fields_.Text("update_scheduler").value_or("cubic");
    const auto found = absl::c_find(ScheduleNames(), kind);
    if (found == ScheduleNames().end()) {
      std::string what =
          absl::StrCat("is ", Quote(kind), ", and must be one of ", absl::StrJoin(ScheduleNames(), ", "));
      if (kind == "polynomial_decay") {
        what = "`polynomial_decay` leaves the range from 0 to 1 for even exponents; with exponent 3 it is `cubic`";
      } else if (absl::StartsWith(kind, "calc(")) {
        what = "`calc(...)` is not read; `multi_step` takes any series of values";
      }
      fields_.Add("update_scheduler", what, ClosestName(kind, ScheduleNames()));
      return;
    }
    out_.schedule.kind = static_cast<ScheduleKind>(found - ScheduleNames().begin());
    ScheduleArguments(kind);
  }

  void ScheduleArguments(const std::string& kind) {
    const bool points = out_.schedule.kind == ScheduleKind::kMultiStep;
    const YamlNode* node = fields_.Find("scheduler_args");
    if (node == nullptr || !node->mapping()) {
      if (node != nullptr) {
        fields_.Add("scheduler_args", absl::StrCat("must be a mapping, not ", node->KindName()));
      } else if (points) {
        Missing("scheduler_args", "`multi_step` takes e.g. {steps: [[0.5, 0.2], [1.0, 0.4]]}");
      }
      return;
    }
    FieldReader arguments(*node, fields_.FieldOf("scheduler_args"), variables_, problems_);
    Names known;
    if (points) known = {"steps"};
    if (out_.schedule.kind == ScheduleKind::kPolynomial) known = {"exponent"};
    arguments.RefuseOthers(known, absl::StrCat("the scheduler ", Quote(kind)));
    if (out_.schedule.kind == ScheduleKind::kPolynomial) {
      out_.schedule.exponent = static_cast<int>(arguments.Whole("exponent", 1, kMaxExponent).value_or(2));
    }
    if (points) Points(arguments);
  }

  void Points(FieldReader& arguments) {
    const YamlNode* list = arguments.Find("steps");
    if (list == nullptr || !list->sequence() || list->children.empty() || list->children.size() > kMaxPoints) {
      arguments.Add("steps", absl::StrCat("must be a list of pairs [time, sparsity], 1 to ", kMaxPoints));
      return;
    }
    for (size_t i = 0; i < list->children.size(); ++i) {
      const YamlNode& pair = list->children[i];
      const std::string field = absl::StrCat(arguments.FieldOf("steps"), "[", i, "]");
      if (!pair.sequence() || pair.children.size() != 2) {
        problems_.Add(pair.mark, field, "must be a pair [time, sparsity]");
        continue;
      }
      std::optional<RecipeTime> time = arguments.TimeOf(pair.children[0], absl::StrCat(field, "[0]"), false);
      std::optional<Rational> sparsity = arguments.SparsityOf(pair.children[1], absl::StrCat(field, "[1]"));
      if (time && sparsity) out_.schedule.points.emplace_back(*std::move(time), *std::move(sparsity));
    }
  }

  void Calibration() {
    fields_.Bool("sequential_update");
    fields_.Texts("sequential_targets");
    fields_.Bool("offload_hessians");
    fields_.Whole("block_size", 1, int64_t{1} << 20);
    fields_.Sparsity("dampening_frac");
    out_.monotone = fields_.Bool("preserve_sparsity_mask").value_or(false);
    const bool profile = fields_.Choice("sparsity_profile", {"owl"}).has_value();
    fields_.Number("owl_m");
    fields_.Number("owl_lmbda");
    for (const absl::string_view name : {"owl_m", "owl_lmbda"}) {
      if (fields_.Has(name) != profile) {
        if (profile) Missing(name, "`sparsity_profile: owl` needs `owl_m` and `owl_lmbda`");
        if (!profile) fields_.Add(name, "means nothing without `sparsity_profile: owl`");
      }
    }
    const YamlNode* node = fields_.Find("sparsity");
    if (node != nullptr && node->sequence()) {
      for (size_t i = 0; i < node->children.size(); ++i) {
        fields_.SparsityOf(node->children[i], absl::StrCat(fields_.FieldOf("sparsity"), "[", i, "]"));
      }
      if (node->children.empty()) fields_.Add("sparsity", "is an empty list");
      return;
    }
    FinalSparsity("sparsity");
    if (out_.structured()) {
      NOfM("sparsity");
    } else if (node == nullptr && !structure_wrong_) {
      Missing("sparsity", "the share of weights that become zero, from 0 to 1");
    } else if (out_.final_sparsity && out_.final_sparsity->zero()) {
      fields_.Add("sparsity", "is 0, and calibrated pruning needs more than that");
    }
    // The profile spreads the sparsity over the layers when the model has been measured.
    if (profile) out_.final_sparsity.reset();
  }

  const ModifierPlace& place_;
  Variables& variables_;
  Problems& problems_;
  std::vector<std::string>& warnings_;
  FieldReader fields_;
  RecipeModifier out_;
  std::vector<std::string> suggested_;
  bool structure_wrong_ = false;  // whether a sparsity is needed beside it cannot be told
};

}  // namespace

RecipeModifier ParseModifier(const ModifierPlace& place, const YamlNode& value, Variables& variables,
                             Problems& problems, std::vector<std::string>& warnings) {
  return Parser(place, value, variables, problems, warnings).Run();
}

}  // namespace espalier
