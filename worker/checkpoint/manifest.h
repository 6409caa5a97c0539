#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/worker_service.pb.h"
#include "worker/report/report_json.h"

namespace espalier {

inline constexpr char kManifestFormat[] = "espalier.checkpoint.v1";
inline constexpr int64_t kMaxManifestBytes = 1'000'000'000;

struct FileRecord {
  int64_t size = 0;
  uint32_t crc32 = 0;
};

// espalier/espalier.json, an object with
//   format       "espalier.checkpoint.v1"
//   recipe_name, recipe    as submitted
//   plan         the resolved plan, protobuf's JSON of v1.Plan with the names of its fields
//   report       worker/report/report_json.h, without provenance
//   mask_digest  decimal string, worker/mask/digest.h over all masks
//   files        name inside the directory -> {"size", "crc32": 8 hexadecimal digits}, every file but this one
//   provenance   all that may differ between equal runs
struct Manifest {
  std::vector<std::string> recipes;  // the one submitted, and those after it in a chain
  uint32_t recipe_crc32 = 0;         // of the plan
  Report report;
  uint64_t mask_digest = 0;
  std::map<std::string, FileRecord> files;
};

std::string MakeManifest(const v1::PublishCheckpoint& request, const std::map<std::string, FileRecord>& files);

// CHECKPOINT_INVALID, naming `file` and the key.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text, absl::string_view file);

}  // namespace espalier
