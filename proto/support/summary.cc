#include "proto/support/summary.h"

namespace espalier {
namespace {

double Percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole) * 100;
}

}  // namespace

v1::SparsitySummary Summarize(absl::Span<const v1::ParameterSparsity> rows, int64_t mask_version) {
  v1::SparsitySummary summary;
  for (const v1::ParameterSparsity& row : rows) {
    summary.set_total(summary.total() + row.numel());
    summary.set_sparse(summary.sparse() + row.zeros());
    summary.set_masked(summary.masked() + row.masked());
    if (!row.prunable()) continue;
    summary.set_prunable(summary.prunable() + row.numel());
    summary.set_prunable_sparse(summary.prunable_sparse() + row.zeros());
  }
  summary.set_sparsity_percent(Percent(summary.sparse(), summary.total()));
  summary.set_prunable_sparsity_percent(Percent(summary.prunable_sparse(), summary.prunable()));
  summary.set_quantizable(summary.prunable());
  summary.set_mask_version(mask_version);
  return summary;
}

}  // namespace espalier
