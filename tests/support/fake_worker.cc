#include "tests/support/fake_worker.h"

#include <utility>

#include "proto/support/errors.h"
#include "proto/support/uuid.h"
#include "server/run/group_call.h"

namespace espalier::testing {
namespace {

int64_t Numel(const v1::Parameter& parameter) {
  int64_t n = 1;
  for (const int64_t d : parameter.shape()) n *= d;
  return n;
}

v1::CountPage* AddCounts(const v1::Command& command, FakeWorker::Messages& answers) {
  v1::ResultPage& page = *answers.emplace_back().mutable_page();
  page.set_command_id(command.command_id());
  page.set_generation(command.generation());
  return page.mutable_counts();
}

}  // namespace

v1::ModelDescription FakeModel(const std::vector<std::string>& names) {
  v1::ModelDescription model;
  for (const std::string& name : names) {
    v1::Parameter& parameter = *model.add_parameters();
    parameter.set_name(name);
    parameter.set_dtype(v1::DTYPE_F32);
    parameter.add_shape(8);
    parameter.add_shape(16);
    parameter.set_layer_kind(v1::LAYER_KIND_LINEAR);
    parameter.set_prunable(true);
    parameter.set_input_dimension(1);
    model.set_total_bytes(model.total_bytes() + Numel(parameter) * 4);
  }
  return model;
}

v1::WorkerMessage FailedAck(const v1::Command& command, v1::ErrorReason reason, const std::string& message) {
  v1::WorkerMessage out;
  out.mutable_ack()->set_command_id(command.command_id());
  out.mutable_ack()->set_generation(command.generation());
  *out.mutable_ack()->mutable_status() = ToProto(MakeError(reason, message));
  return out;
}

FakeWorker::FakeWorker(std::string name, v1::ModelDescription model)
    : name_(std::move(name)), model_(std::move(model)), incarnation_(NewUuid()) {}

v1::WorkerMessage FakeWorker::Hello() const {
  v1::WorkerMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_kind(v1::WORKER_KIND_CHECKPOINT);
  hello.set_worker(name_);
  hello.set_incarnation(incarnation_);
  hello.set_host("here");
  hello.set_device("cpu");
  hello.set_protocol_version(1);
  hello.set_run(run_);
  hello.set_generation(generation_);
  hello.set_mask_version(version_);
  hello.set_rank(rank_);
  return message;
}

v1::WorkerMessage FakeWorker::Heartbeat() const {
  v1::WorkerMessage message;
  *message.mutable_heartbeat() = heartbeat_;
  return message;
}

void FakeWorker::Restart() {
  incarnation_ = NewUuid();
  run_.clear();
  generation_ = 0;
  version_ = 0;
  masked_.clear();
  stored_.clear();
  dismissed_ = false;
}

int64_t FakeWorker::Share(int64_t whole) const {
  return whole * (rank_ + 1) / world_size_ - whole * rank_ / world_size_;
}

FakeWorker::Messages FakeWorker::Take(const v1::CoordinatorMessage& message) {
  if (message.has_dismiss()) dismissed_ = true;
  if (message.has_welcome() && coordinator_ != message.welcome().instance_id()) {
    coordinator_ = message.welcome().instance_id();
    stored_.clear();
  }
  if (message.has_void_generation()) voided_.push_back(message.void_generation());
  if (!message.has_command()) return {};
  partial_.MergeFrom(message.command());
  if (!message.command().last_part()) return {};
  const v1::Command command = std::exchange(partial_, {});
  if (const auto stored = stored_.find(command.command_id()); stored != stored_.end()) return stored->second;
  Messages answers = Execute(command);
  stored_[command.command_id()] = answers;
  if (const auto script = scripts_.find(OperationOf(command)); script != scripts_.end()) {
    script->second(command, answers);
  }
  return answers;
}

FakeWorker::Messages FakeWorker::Execute(const v1::Command& command) {
  const std::string operation = OperationOf(command);
  executed_.push_back(operation);
  last_[operation] = command;
  Messages answers;
  v1::WorkerMessage done;
  v1::Ack& ack = *done.mutable_ack();
  ack.set_command_id(command.command_id());
  ack.set_generation(command.generation());
  switch (command.op_case()) {
    case v1::Command::kInspectModel: {
      v1::ResultPage& page = *answers.emplace_back().mutable_page();
      page.set_command_id(command.command_id());
      *page.mutable_model() = model_;
      ack.mutable_inspect_model()->set_resolved_path(command.inspect_model().path());
      break;
    }
    case v1::Command::kOpenRendezvous:
      ack.mutable_open_rendezvous()->set_address("127.0.0.1:1");
      break;
    case v1::Command::kJoinGroup:
      run_ = command.run();
      generation_ = command.generation();
      rank_ = command.join_group().rank();
      world_size_ = command.join_group().world_size();
      version_ = 0;
      masked_.clear();
      break;
    case v1::Command::kLoadModel:
      ack.mutable_load_model()->set_shard_bytes(Share(model_.total_bytes()));
      break;
    case v1::Command::kCountUpdate:
      Count(command, answers);
      break;
    case v1::Command::kUpdateMasks:
      Update(command, answers, ack);
      break;
    case v1::Command::kReportSparsity:
      ack.mutable_report_sparsity()->set_mask_version(version_);
      ack.mutable_report_sparsity()->set_bytes_sent(world_size_ == 1 ? 0 : 16 * model_.parameters_size());
      if (rank_ == 0) {
        Report(answers);
        for (v1::WorkerMessage& answer : answers) {
          answer.mutable_page()->set_command_id(command.command_id());
          answer.mutable_page()->set_generation(command.generation());
        }
      }
      break;
    case v1::Command::kSaveShards: {
      v1::ResultPage& page = *answers.emplace_back().mutable_page();
      page.set_command_id(command.command_id());
      page.set_generation(command.generation());
      v1::RangeChecksum& checksum = *page.mutable_checksums()->add_checksums();
      checksum.set_file("model.safetensors");
      checksum.set_offset(rank_);
      ack.mutable_save_shards()->set_bytes_written(Share(model_.total_bytes()));
      break;
    }
    case v1::Command::kPublishCheckpoint:
      ack.mutable_publish_checkpoint()->set_bytes_total(model_.total_bytes());
      break;
    case v1::Command::kLeaveGroup:
      run_.clear();
      generation_ = 0;
      break;
    default:
      break;
  }
  answers.push_back(std::move(done));
  return answers;
}

void FakeWorker::Count(const v1::Command& command, Messages& answers) const {
  v1::CountPage& page = *AddCounts(command, answers);
  const v1::UpdateSpec& spec = command.count_update().spec();
  for (const std::string& name : spec.parameters()) {
    const auto masked = masked_.find(name);
    page.add_counts(masked == masked_.end() ? 0 : Share(masked->second));
  }
}

void FakeWorker::Update(const v1::Command& command, Messages& answers, v1::Ack& ack) {
  v1::CountPage& page = *AddCounts(command, answers);
  const v1::UpdateSpec& spec = command.update_masks().spec();
  const bool global = spec.method() == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE;
  for (int i = 0; i < spec.parameters_size(); ++i) {
    const int n = spec.parameters_size();
    const int64_t whole = global ? spec.targets(0) * (i + 1) / n - spec.targets(0) * i / n : spec.targets(i);
    masked_[spec.parameters(i)] = whole;
    page.add_counts(Share(whole));
    page.add_zeros(Share(whole));
    page.add_violations(0);
  }
  version_ = spec.version();
  v1::UpdateMasksResult& result = *ack.mutable_update_masks();
  result.set_version(version_);
  result.set_mask_digest(static_cast<uint64_t>(rank_) + 1);
  result.set_selection_hash(static_cast<uint64_t>(version_) * 1000);
}

void FakeWorker::Report(Messages& answers) const {
  v1::ReportPage& page = *answers.emplace_back().mutable_page()->mutable_report();
  for (const v1::Parameter& parameter : model_.parameters()) {
    v1::ParameterSparsity& row = *page.add_parameters();
    row.set_name(parameter.name());
    row.set_dtype(parameter.dtype());
    *row.mutable_shape() = parameter.shape();
    row.set_numel(Numel(parameter));
    row.set_prunable(parameter.prunable());
    const auto masked = masked_.find(parameter.name());
    if (masked == masked_.end()) continue;
    row.set_masked(masked->second);
    row.set_zeros(masked->second);
    row.set_mask_version(version_);
  }
}

}  // namespace espalier::testing
