#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/path_roots.h"

namespace espalier {

// Something that is not as espalier/espalier.json says.
struct Difference {
  std::string file;  // inside the directory
  std::string what;
};

struct VerifyResult {
  std::vector<Difference> differences;  // empty: all is as written
  int64_t files = 0;                    // checked
  int64_t bytes = 0;
  int64_t parameters = 0;
};

// Checks an output of ours against its own manifest: every file is there with its size and checksum and no weight or
// JSON file is there besides; the report and the masks agree with the bytes, no non-zero weight lies under a mask, and the digest
// of the masks is the one recorded. CHECKPOINT_INVALID when the directory has no readable manifest; PATH_NOT_ALLOWED;
// LIMIT_EXCEEDED when too many files are open. The manifest itself is not signed: it is taken as written.
absl::StatusOr<VerifyResult> VerifyDirectory(const std::string& path, const PathRoots& roots = {},
                                             const ByteProgress& progress = {});

}  // namespace espalier
