#include "server/run/upload_relay.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

absl::Status Broken(absl::string_view what) {
  return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("upload of a parameter: ", what),
                   {{"what", std::string(what)}, {"where", "UploadParameter"}});
}

}  // namespace

UploadRelay::UploadRelay(int64_t generation, int64_t mask_version, std::shared_ptr<ChunkSink> sink,
                         std::function<void(const absl::Status&)> ended)
    : generation_(generation), mask_version_(mask_version), sink_(std::move(sink)), ended_(std::move(ended)) {}

absl::Status UploadRelay::Gone() const {
  return MakeError(v1::ERROR_REASON_OPERATION_NOT_FOUND, "nobody waits for this upload any more",
                   {{"operation", "UploadParameter"}});
}

void UploadRelay::End(const absl::Status& status) {
  std::function<void(const absl::Status&)> ended;
  {
    MutexLock lock(mutex_);
    ended = std::exchange(ended_, nullptr);
  }
  if (ended) ended(status);
}

absl::Status UploadRelay::Begin(const v1::ParameterHeader& header) {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (finished_ || sink_->Closed()) {
      status = Gone();
    } else if (begun_) {
      status = Broken("a second header");
    } else if (header.generation() != generation_ || header.mask_version() != mask_version_) {
      status = MakeError(v1::ERROR_REASON_GENERATION_STALE,
                         absl::StrCat("upload of generation ", header.generation(), ", mask version ",
                                      header.mask_version(), "; the run is at ", generation_, ", ", mask_version_),
                         {{"seen", absl::StrCat(generation_)}, {"given", absl::StrCat(header.generation())}});
    } else {
      begun_ = true;
      header_ = header;
      sink_->WriteHeader(header);
    }
  }
  if (!status.ok()) End(status);
  return status;
}

absl::Status UploadRelay::Accept(v1::DataChunk chunk) {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (finished_ || sink_->Closed()) {
      status = Gone();
    } else if (!begun_) {
      status = Broken("data before the header");
    } else if (chunk.index() != chunks_) {
      status = Broken(absl::StrCat("chunk ", chunk.index(), " instead of ", chunks_));
    } else if (Crc32(0, chunk.data().data(), chunk.data().size()) != chunk.crc32()) {
      status = Broken(absl::StrCat("chunk ", chunks_, " does not match its checksum"));
    } else {
      ++chunks_;
      bytes_ += static_cast<int64_t>(chunk.data().size());
      sink_->WriteChunk(std::move(chunk));
    }
  }
  if (!status.ok()) End(status);
  return status;
}

absl::Status UploadRelay::Complete() {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (!begun_) {
      status = Broken("ended without a header");
    } else if (chunks_ != header_.total_chunks() || bytes_ != header_.total_bytes()) {
      status = Broken(absl::StrCat("ended after ", bytes_, " of ", header_.total_bytes(), " bytes"));
    }
  }
  End(status);
  return status;
}

void UploadRelay::Break(const absl::Status& status) {
  End(status);
}

void UploadRelay::WhenRoom(std::function<void()> callback) {
  {
    MutexLock lock(mutex_);
    waiting_ = std::move(callback);
  }
  sink_->OnChange([weak = weak_from_this()] {
    if (const auto relay = weak.lock()) relay->Wake();
  });
  Wake();
}

void UploadRelay::Wake() {
  std::function<void()> waiting;
  {
    MutexLock lock(mutex_);
    if (!finished_ && !sink_->Closed() && !sink_->HasRoom()) return;
    waiting = std::exchange(waiting_, nullptr);
  }
  if (waiting) waiting();
}

void UploadRelay::Finish(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    if (finished_) return;
    finished_ = true;
  }
  sink_->OnChange(nullptr);
  sink_->Finish(status);
  Wake();
}

int64_t UploadRelay::passed() const {
  MutexLock lock(mutex_);
  return chunks_ + (begun_ ? 1 : 0);
}

}  // namespace espalier
