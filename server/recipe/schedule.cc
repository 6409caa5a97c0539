#include "server/recipe/schedule.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace espalier {
namespace {

// Share of the way from init to final; nullopt when the exact number is too large, which no schedule of fewer than 2^50
// steps reaches.
std::optional<Rational> ShareAt(const Schedule& schedule, int64_t step) {
  const std::optional<Rational> progress = Rational::Of(step - schedule.start, schedule.end - schedule.start);
  if (!progress) return std::nullopt;
  if (schedule.kind == ScheduleKind::kLinear) return progress;
  if (schedule.kind == ScheduleKind::kPolynomial) return Rational::Power(*progress, schedule.exponent);
  const std::optional<Rational> rest = Rational::Subtract(*progress, 1);
  const std::optional<Rational> cube = rest ? Rational::Power(*rest, 3) : std::nullopt;
  return cube ? Rational::Add(*cube, 1) : std::nullopt;
}

Rational ExactAt(const Schedule& schedule, int64_t step) {
  if (step >= schedule.end || schedule.kind == ScheduleKind::kConstant) return schedule.final;
  if (schedule.kind == ScheduleKind::kMultiStep) {
    const auto after = std::upper_bound(schedule.points.begin(), schedule.points.end(), step,
                                        [](int64_t value, const auto& point) { return value < point.first; });
    return after == schedule.points.begin() ? schedule.init : std::prev(after)->second;
  }
  const std::optional<Rational> share = ShareAt(schedule, step);
  const std::optional<Rational> difference = Rational::Subtract(schedule.final, schedule.init);
  const std::optional<Rational> part = share && difference ? Rational::Multiply(*difference, *share) : std::nullopt;
  return (part ? Rational::Add(schedule.init, *part) : std::nullopt).value_or(schedule.final);
}

}  // namespace

Rational SparsityAt(const Schedule& schedule, int64_t step) {
  const Rational& low = std::min(schedule.init, schedule.final);
  const Rational& high = std::max(schedule.init, schedule.final);
  const Rational exact = ExactAt(schedule, step);
  if (step >= schedule.end) return exact;
  return std::min(std::max(exact, low), high).Round(Rational::kPlaces);
}

}  // namespace espalier
