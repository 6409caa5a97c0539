#pragma once

// Reports as JSON: the form of SparseML's ModuleSparsificationInfo, its key order, ", " and ": " separators and Python's
// spelling of floats, with our additions behind its own keys, on one line:
//
//   {"params_summary": {"total", "sparse", "sparsity_percent", "prunable", "prunable_sparse", "prunable_sparsity_percent",
//                       "quantizable", "quantized", "quantized_percent", "masked", "mask_version"},
//    "params_info": {"<parameter>": {"numel", "sparsity", "quantized", "zeros", "masked", "dtype", "shape", "prunable",
//                                    "structure", "mask_version", "planned"}},
//    "provenance": {"run", "generation", "mode", "world_size", "elapsed_seconds", "bytes_moved", "path", "time",
//                   "version"}}
//
// Percentages run from 0 to 100; `sparsity` is zeros / numel, 0 to 1, 0.0 for an empty tensor. params_info lists every
// parameter of the report, so that it can be recounted and read back; those that SparseML would list are the `prunable`
// ones. `structure` is "unstructured" or "N:M" (N kept), null without a mask; `planned` is null where no update touched
// the parameter; `mode` is "shard-counts", "gather" or "files". Everything but `provenance` is the same to the byte for
// every world size and mode. The text is ASCII and does not depend on the locale.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "espalier/v1/report.pb.h"

namespace espalier {

struct Report {
  v1::SparsitySummary summary;
  std::vector<v1::ParameterSparsity> rows;
  std::optional<v1::Provenance> provenance;
};

// Rows in the order given (reports sort them by name). Without `provenance` the block is left out.
std::string ReportToJson(absl::Span<const v1::ParameterSparsity> rows, const v1::SparsitySummary& summary,
                         const v1::Provenance* provenance);

// The inverse, rows sorted by name. Keys it does not know are ignored, all above but `provenance` must be there.
// CHECKPOINT_INVALID with the key in metadata `what`; the caller adds the file.
absl::StatusOr<Report> ReportFromJson(absl::string_view text);

// A finite double as Python's repr spells it: the fewest digits that read back the same, always with "." or "e".
std::string FloatRepr(double value);

// "shard-counts", "gather", "files"; empty for REPORT_MODE_UNSPECIFIED.
std::string ReportModeName(v1::ReportMode mode);

}  // namespace espalier
