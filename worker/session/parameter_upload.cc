#include "worker/session/parameter_upload.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/support/channel.h"
#include "proto/support/crc32.h"
#include "proto/support/grpc_status.h"

namespace espalier {

ParameterUpload::ParameterUpload(const UploadTarget& target, int64_t command_id, v1::ParameterHeader header,
                                 absl::Duration timeout)
    : stub_(v1::WorkerService::NewStub(DialCoordinator(target.coordinator))) {
  context_.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  writer_ = stub_->UploadParameter(&context_, &response_);
  v1::UploadParameterRequest first;
  first.set_command_id(command_id);
  first.set_worker(target.worker);
  first.set_incarnation(target.incarnation);
  header.set_total_chunks((header.total_bytes() + kChunkBytes - 1) / kChunkBytes);
  *first.mutable_header() = std::move(header);
  broken_ = !writer_->Write(first);
}

ParameterUpload::~ParameterUpload() {
  if (finished_) return;
  // gRPC wants every call to be ended.
  context_.TryCancel();
  writer_->Finish();
}

void ParameterUpload::Append(absl::Span<const std::byte> bytes) {
  while (!bytes.empty() && !broken_) {
    std::string& data = *chunk_.mutable_chunk()->mutable_data();
    const size_t take = std::min(bytes.size(), static_cast<size_t>(kChunkBytes) - data.size());
    // std::byte and char may both alias anything.
    data.append(reinterpret_cast<const char*>(bytes.data()), take);
    bytes.remove_prefix(take);
    if (static_cast<int64_t>(data.size()) == kChunkBytes) SendChunk();
  }
}

void ParameterUpload::SendChunk() {
  v1::DataChunk& chunk = *chunk_.mutable_chunk();
  chunk.set_index(next_index_++);
  chunk.set_crc32(Crc32(0, chunk.data().data(), chunk.data().size()));
  broken_ = broken_ || !writer_->Write(chunk_);
  chunk.mutable_data()->clear();
}

absl::Status ParameterUpload::Finish() {
  if (!chunk_.chunk().data().empty() && !broken_) SendChunk();
  if (!broken_) writer_->WritesDone();
  finished_ = true;
  return FromGrpc(writer_->Finish());
}

}  // namespace espalier
