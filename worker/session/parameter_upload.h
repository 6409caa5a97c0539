#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "espalier/v1/worker_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace espalier {

// Where bulk data goes, and as whose.
struct UploadTarget {
  std::string coordinator;
  std::string worker;
  std::string incarnation;
};

// One call of WorkerService.UploadParameter on a connection of its own. Bytes are cut into chunks of kChunkBytes with a
// CRC-32 each. After an error everything else is ignored, so that a rank that must go on in its collectives can.
class ParameterUpload {
 public:
  static constexpr int64_t kChunkBytes = 1 << 20;

  // `header` lacks total_chunks, which follows from its total_bytes.
  ParameterUpload(const UploadTarget& target, int64_t command_id, v1::ParameterHeader header, absl::Duration timeout);
  ~ParameterUpload();

  void Append(absl::Span<const std::byte> bytes);
  // Sends what is left and waits for the coordinator's answer. OPERATION_NOT_FOUND: nobody waits for it any more.
  absl::Status Finish();

 private:
  void SendChunk();

  grpc::ClientContext context_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  v1::UploadParameterResponse response_;
  std::unique_ptr<grpc::ClientWriter<v1::UploadParameterRequest>> writer_;
  v1::UploadParameterRequest chunk_;
  int64_t next_index_ = 0;
  bool broken_ = false;
  bool finished_ = false;
};

}  // namespace espalier
