#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/sparsification_service.pb.h"

namespace espalier {

// One page of a plan: parameters first, then what was left out; at most `page_size` of both together. `check` tells this
// plan from others and stands in the tokens of its pages. Pure; the time grows with the page. REQUEST_INVALID for a bad
// size, or a token that is not one of this plan.
absl::StatusOr<v1::GetPlanResponse> PlanPage(const v1::Plan& plan, const v1::PlanSummary& summary,
                                             const v1::ModelDescription& model, uint32_t check, int page_size,
                                             absl::string_view page_token);

}  // namespace espalier
