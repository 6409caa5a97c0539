#include "tests/support/fake_worker_client.h"

#include <utility>

#include "proto/support/crc32.h"

namespace espalier::testing {
namespace {

constexpr int64_t kChunks = 6;
constexpr size_t kChunkBytes = size_t{1} << 20;

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
}

}  // namespace

FakeWorkerClient::FakeWorkerClient(const std::string& address, FakeWorker worker)
    : worker_(std::move(worker)), stub_(v1::WorkerService::NewStub(Dial(address))), stream_(stub_->Session(&context_)) {
  stream_->Write(worker_.Hello());
  thread_ = std::thread([this] { Serve(); });
}

FakeWorkerClient::~FakeWorkerClient() {
  context_.TryCancel();
  if (thread_.joinable()) thread_.join();
}

grpc::Status FakeWorkerClient::Wait() {
  thread_.join();
  return status_;
}

void FakeWorkerClient::Serve() {
  v1::CoordinatorMessage message;
  while (stream_->Read(&message)) {
    for (const v1::WorkerMessage& answer : worker_.Take(message)) {
      const bool gathers = message.command().has_gather_parameter() && worker_.rank() == 0 && answer.has_ack();
      if (gathers) {
        const grpc::Status status = Upload(message.command());
        MutexLock lock(mutex_);
        upload_status_ = status;
      }
      stream_->Write(answer);
    }
    stream_->Write(worker_.Heartbeat());
  }
  status_ = stream_->Finish();
}

grpc::Status FakeWorkerClient::Upload(const v1::Command& command) {
  grpc::ClientContext context;
  v1::UploadParameterResponse response;
  const auto writer = stub_->UploadParameter(&context, &response);
  v1::UploadParameterRequest request;
  request.set_command_id(command.command_id());
  request.set_worker(worker_.name());
  request.set_incarnation(worker_.incarnation());
  request.mutable_header()->set_generation(command.generation());
  request.mutable_header()->set_mask_version(1);
  request.mutable_header()->set_total_chunks(kChunks);
  request.mutable_header()->set_total_bytes(kChunks * static_cast<int64_t>(kChunkBytes));
  bool ok = writer->Write(request);
  for (int64_t i = 0; ok && i < kChunks; ++i) {
    request.Clear();
    v1::DataChunk& chunk = *request.mutable_chunk();
    chunk.set_index(i);
    chunk.set_data(std::string(kChunkBytes, static_cast<char>('a' + i)));
    chunk.set_crc32(Crc32(0, chunk.data().data(), chunk.data().size()));
    ok = writer->Write(request);
  }
  writer->WritesDone();
  return writer->Finish();
}

}  // namespace espalier::testing
