#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "espalier/v1/report.pb.h"

namespace espalier {

// The sums of a report (report.proto). `quantizable` counts the weights that count as prunable, `quantized` is 0: Espalier
// does not quantize. Pure.
v1::SparsitySummary Summarize(absl::Span<const v1::ParameterSparsity> rows, int64_t mask_version);

}  // namespace espalier
