#include "server/recipe/timing.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/recipe/schedule.h"

namespace espalier {
namespace {

constexpr int64_t kMaxStep = int64_t{1} << 50;

bool InEpochs(const std::optional<RecipeTime>& time) {
  return time && !time->open && time->unit == RecipeTime::Unit::kEpochs && !time->value.zero();
}

// Converts the times of one modifier.
class Clock {
 public:
  Clock(int64_t steps_per_epoch, Problems& problems) : steps_per_epoch_(steps_per_epoch), problems_(problems) {}

  // Exact, maybe fractional, steps.
  std::optional<Rational> Exact(const RecipeTime& time) {
    std::optional<Rational> steps = time.value;
    if (time.unit == RecipeTime::Unit::kEpochs && !time.value.zero()) {
      if (steps_per_epoch_ <= 0) {
        problems_.Add(time.mark, time.field,
                      "is in epochs, and how many optimizer steps make an epoch is not known; give "
                      "`optimizer_steps_per_epoch`, or write steps, e.g. \"120steps\"");
        return std::nullopt;
      }
      steps = Rational::Multiply(time.value, steps_per_epoch_);
    }
    if (!steps || *steps > Rational(kMaxStep)) {
      problems_.Add(time.mark, time.field, "is too far away");
      return std::nullopt;
    }
    return steps;
  }

  std::optional<int64_t> Whole(const RecipeTime& time) {
    const std::optional<Rational> exact = Exact(time);
    return exact ? exact->RoundHalfEven().ToInt64() : std::nullopt;
  }

 private:
  const int64_t steps_per_epoch_;
  Problems& problems_;
};

// The moments at which the sparsity of a schedule is set, ascending, `end` last; nullopt for more than kMaxTicks.
std::optional<std::vector<int64_t>> Moments(const Schedule& schedule, const std::optional<Rational>& interval) {
  std::vector<int64_t> out;
  const Rational last(schedule.end);
  if (interval || (schedule.kind != ScheduleKind::kMultiStep && schedule.kind != ScheduleKind::kConstant)) {
    const Rational step = interval && *interval > Rational(1) ? *interval : Rational(1);
    if (*Rational::Subtract(last, schedule.start) > *Rational::Multiply(step, kMaxTicks)) return std::nullopt;
    for (int64_t i = 0;; ++i) {
      const std::optional<Rational> offset = Rational::Multiply(step, i);
      const std::optional<Rational> at = offset ? Rational::Add(schedule.start, *offset) : std::nullopt;
      if (!at) return std::nullopt;
      const int64_t moment = at->RoundHalfEven().ToInt64().value_or(schedule.end);
      if (moment >= schedule.end) break;
      out.push_back(moment);
    }
  } else {
    out.push_back(schedule.start);
    for (const auto& [step, sparsity] : schedule.points) {
      if (step > schedule.start && step < schedule.end) out.push_back(step);
    }
    // A constant schedule has nothing to change at its end.
    if (schedule.kind == ScheduleKind::kConstant) return out;
  }
  out.push_back(schedule.end);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::optional<Schedule> MakeSchedule(const RecipeModifier& modifier, const Timing& timing, Clock& clock,
                                     Problems& problems) {
  Schedule out;
  out.kind = modifier.schedule.kind;
  out.exponent = modifier.schedule.exponent;
  out.init = modifier.init_sparsity;
  out.final = *modifier.final_sparsity;
  out.start = timing.start;
  out.end = timing.end;
  for (const auto& [time, sparsity] : modifier.schedule.points) {
    const std::optional<int64_t> step = clock.Whole(time);
    if (!step) return std::nullopt;
    if (*step < out.start || *step > out.end) {
      problems.Add(time.mark, time.field,
                   absl::StrCat("is step ", *step, ", outside the modifier's steps ", out.start, " to ", out.end));
      return std::nullopt;
    }
    out.points.emplace_back(*step, sparsity);
  }
  std::stable_sort(out.points.begin(), out.points.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

}  // namespace

bool NeedsStepsPerEpoch(const RecipeStage& stage) {
  return std::any_of(stage.modifiers.begin(), stage.modifiers.end(), [](const RecipeModifier& modifier) {
    return InEpochs(modifier.start) || InEpochs(modifier.end) || InEpochs(modifier.update_frequency) ||
           std::any_of(modifier.schedule.points.begin(), modifier.schedule.points.end(),
                       [](const auto& point) { return InEpochs(point.first); });
  });
}

std::optional<Timing> ResolveTiming(const RecipeStage& stage, const RecipeModifier& modifier, int64_t steps_per_epoch,
                                    Problems& problems) {
  Timing out;
  if (stage.run_type == v1::RUN_TYPE_ONESHOT) {
    out.ticks.push_back({0, modifier.final_sparsity});
    return out;
  }
  Clock clock(steps_per_epoch, problems);
  const std::optional<int64_t> start = modifier.start ? clock.Whole(*modifier.start) : 0;
  const bool open = !modifier.end || modifier.end->open;
  const std::optional<int64_t> end = open ? Timing::kOpen : clock.Whole(*modifier.end);
  std::optional<Rational> interval;
  if (modifier.update_frequency) {
    interval = clock.Exact(*modifier.update_frequency);
    if (!interval) return std::nullopt;
  }
  if (!start || !end) return std::nullopt;
  out.start = *start;
  out.end = *end;
  if (out.end < out.start) {
    problems.Add(modifier.end->mark, modifier.end->field,
                 absl::StrCat("is step ", out.end, ", before the start at step ", out.start));
    return std::nullopt;
  }
  if (modifier.structured() || modifier.method == v1::SELECTION_METHOD_CONSTANT) {
    out.ticks.push_back({out.start, std::nullopt});
    return out;
  }
  const std::optional<Schedule> schedule = MakeSchedule(modifier, out, clock, problems);
  if (!schedule) return std::nullopt;
  const std::optional<std::vector<int64_t>> moments = Moments(*schedule, interval);
  if (!moments) {
    const TargetEntry at = modifier.update_frequency
                               ? TargetEntry{"", modifier.update_frequency->mark, modifier.update_frequency->field}
                               : TargetEntry{"", modifier.mark, modifier.field};
    Problem problem;
    problem.reason = v1::ERROR_REASON_LIMIT_EXCEEDED;
    problem.mark = at.mark;
    problem.field = at.field;
    problem.what = absl::StrCat("makes more than ", kMaxTicks, " updates from step ", out.start, " to ", out.end,
                                "; give a larger `update_frequency`");
    problem.metadata = {{"limit", absl::StrCat(kMaxTicks)}};
    problems.Add(std::move(problem));
    return std::nullopt;
  }
  for (const int64_t moment : *moments) out.ticks.push_back({moment, SparsityAt(*schedule, moment)});
  return out;
}

}  // namespace espalier
