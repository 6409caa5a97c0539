#include "server/run/plan_pages.h"

#include <algorithm>

#include "proto/support/status_macros.h"
#include "server/recipe/planner.h"
#include "server/run/requests.h"

namespace espalier {
namespace {

// Adds entries [begin, end) of what all modifiers left out.
void AddLeftOut(const v1::Plan& plan, int64_t begin, int64_t end, v1::GetPlanResponse& page) {
  int64_t first = 0;  // number of the modifier's first entry
  for (const v1::PlannedModifier& modifier : plan.modifiers()) {
    if (first >= end) return;
    const int64_t to = std::min<int64_t>(end - first, modifier.left_out_size());
    for (int64_t i = std::max<int64_t>(begin - first, 0); i < to; ++i) {
      *page.add_left_out() = modifier.left_out(static_cast<int>(i));
    }
    first += modifier.left_out_size();
  }
}

}  // namespace

absl::StatusOr<v1::GetPlanResponse> PlanPage(const v1::Plan& plan, const v1::PlanSummary& summary,
                                             const v1::ModelDescription& model, uint32_t check, int page_size,
                                             absl::string_view page_token) {
  ESPALIER_ASSIGN_OR_RETURN(const int size, PageSize(page_size, 1000, kMaxPageSize));
  ESPALIER_ASSIGN_OR_RETURN(int64_t begin, ReadPageToken(page_token, "p", check));
  begin = std::max<int64_t>(begin, 0);
  const int64_t planned = CountPlannedParameters(plan);
  int64_t total = planned;
  for (const v1::PlannedModifier& modifier : plan.modifiers()) total += modifier.left_out_size();
  const int64_t end = std::min(total, begin + size);
  v1::GetPlanResponse page;
  *page.mutable_summary() = summary;
  for (v1::PlannedParameter& entry : PlannedParameters(plan, model, begin, std::min(end, planned))) {
    *page.add_parameters() = std::move(entry);
  }
  AddLeftOut(plan, std::max<int64_t>(begin - planned, 0), end - planned, page);
  if (end < total) page.set_next_page_token(MakePageToken("p", end, check));
  return page;
}

}  // namespace espalier
