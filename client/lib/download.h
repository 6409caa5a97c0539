#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "espalier/v1/resources.pb.h"

namespace espalier {

// Checks the messages of one download: the header first and once, chunks from 0 without gaps, each with its checksum, and
// in the end as many chunks and bytes as announced. INVARIANT otherwise. Not thread-safe.
class DownloadCheck {
 public:
  absl::Status OnHeader(const v1::ParameterHeader& header);
  absl::Status OnChunk(const v1::DataChunk& chunk);
  absl::Status OnEnd() const;
  bool has_header() const { return has_header_; }

 private:
  bool has_header_ = false;
  v1::ParameterHeader header_;
  int64_t chunks_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace espalier
