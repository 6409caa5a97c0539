#include "client/lib/download.h"

#include "absl/strings/str_cat.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

absl::Status Damaged(absl::string_view what) {
  return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("download: ", what, "; repeat it"),
                   {{"what", std::string(what)}, {"where", "download"}});
}

}  // namespace

absl::Status DownloadCheck::OnHeader(const v1::ParameterHeader& header) {
  if (has_header_) return Damaged("a second header");
  has_header_ = true;
  header_ = header;
  return absl::OkStatus();
}

absl::Status DownloadCheck::OnChunk(const v1::DataChunk& chunk) {
  if (!has_header_) return Damaged("data before the header");
  if (chunk.index() != chunks_) return Damaged(absl::StrCat("chunk ", chunk.index(), " instead of ", chunks_));
  if (Crc32(0, chunk.data().data(), chunk.data().size()) != chunk.crc32()) {
    return Damaged(absl::StrCat("chunk ", chunks_, " does not match its checksum"));
  }
  ++chunks_;
  bytes_ += static_cast<int64_t>(chunk.data().size());
  if (bytes_ > header_.total_bytes()) return Damaged("more bytes than announced");
  return absl::OkStatus();
}

absl::Status DownloadCheck::OnEnd() const {
  if (!has_header_) return Damaged("ended without a header");
  if (chunks_ != header_.total_chunks() || bytes_ != header_.total_bytes()) {
    return Damaged(absl::StrCat("ended after ", bytes_, " of ", header_.total_bytes(), " bytes, ", chunks_, " of ",
                                header_.total_chunks(), " chunks"));
  }
  return absl::OkStatus();
}

}  // namespace espalier
