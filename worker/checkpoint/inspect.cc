#include "worker/checkpoint/inspect.h"

#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/count.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/mask_file.h"
#include "worker/report/report.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

// What the manifest says of masks that the bits do not: structure and version. Empty without a manifest.
absl::StatusOr<Report> RecordedReport(const Checkpoint& checkpoint) {
  const std::string path = absl::StrCat(checkpoint.directory(), "/", kManifestName);
  std::error_code error;
  if (checkpoint.mask_file() == nullptr || !std::filesystem::exists(path, error)) return Report();
  ESPALIER_ASSIGN_OR_RETURN(const auto file, InputFile::Open(path, path));
  ESPALIER_ASSIGN_OR_RETURN(const std::string text, file->ReadText(kMaxManifestBytes));
  ESPALIER_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text, path));
  return std::move(manifest.report);
}

}  // namespace

absl::StatusOr<InspectResult> InspectFiles(const Checkpoint& checkpoint, const ByteProgress& progress) {
  ESPALIER_ASSIGN_OR_RETURN(const Report recorded, RecordedReport(checkpoint));
  std::map<absl::string_view, const v1::ParameterSparsity*> known;
  for (const v1::ParameterSparsity& row : recorded.rows) known[row.name()] = &row;

  ESPALIER_ASSIGN_OR_RETURN(const std::vector<FileCounts> counts, CountAll(checkpoint, progress));
  InspectResult result;
  for (size_t i = 0; i < counts.size(); ++i) {
    const v1::Parameter& parameter = checkpoint.description().parameters(static_cast<int>(i));
    v1::ParameterSparsity& row = result.rows.emplace_back();
    row.set_name(parameter.name());
    row.set_dtype(parameter.dtype());
    *row.mutable_shape() = parameter.shape();
    row.set_numel(NumElements(parameter.shape()));
    row.set_zeros(counts[i].zeros);
    row.set_masked(counts[i].masked);
    row.set_prunable(parameter.prunable());
    row.set_planned(-1);
    const auto before = known.find(parameter.name());
    if (before == known.end() || !parameter.has_stored_mask()) continue;
    if (before->second->has_structure()) *row.mutable_structure() = before->second->structure();
    row.set_mask_version(before->second->mask_version());
  }
  result.summary = Summarize(result.rows, recorded.summary.mask_version());
  return result;
}

}  // namespace espalier
