#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "espalier/v1/report.pb.h"

namespace espalier {

struct ReportTableOptions {
  // Parameters shown before "and n more"; 0: all.
  int64_t max_rows = 0;
  // ANSI colours, for terminals.
  bool color = false;
};

// A report for people: aligned columns (parameter, shape, dtype, zeros, of, sparsity, masked, planned) of the parameters
// that are prunable, masked or planned, one line for all others together, and the sums. `planned` says "ok" where
// `masked` is what the plan wanted, else the number it wanted; empty without plan. Ends with a newline. Locale
// independent; parameter names are printed with control characters escaped.
std::string ReportTable(absl::Span<const v1::ParameterSparsity> rows, const v1::SparsitySummary& summary,
                        const v1::Provenance* provenance, const ReportTableOptions& options = {});

}  // namespace espalier
