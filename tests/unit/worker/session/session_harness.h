#pragma once

// A session that runs in a thread of the test, against a fake coordinator, on a tiny model.

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/fake_coordinator.h"
#include "tests/support/test_dir.h"
#include "worker/session/group.h"
#include "worker/session/session.h"

namespace espalier::testing {

struct TinyTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// One F32 safetensors file.
inline void WriteTinyModel(const std::string& directory, const std::map<std::string, TinyTensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.resize(begin + tensor.values.size() * sizeof(float));
    std::memcpy(data.data() + begin, tensor.values.data(), tensor.values.size() * sizeof(float));
    std::string shape;
    for (const int64_t d : tensor.shape) absl::StrAppend(&shape, shape.empty() ? "" : ",", d);
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", name, "\":{\"dtype\":\"F32\",\"shape\":[", shape,
                    "],\"data_offsets\":[", begin, ",", data.size(), "]}");
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  WriteFile(directory + "/model.safetensors", file + header + data);
}

// Values 1, 2, 3, ... so that the smallest half is the first half.
inline TinyTensor Ramp(int64_t rows, int64_t columns) {
  TinyTensor tensor{{rows, columns}, {}};
  for (int64_t i = 0; i < rows * columns; ++i) tensor.values.push_back(static_cast<float>(i + 1));
  return tensor;
}

// Hands out groups that a test has made.
class FakeGroups final : public GroupFactory {
 public:
  explicit FakeGroups(std::shared_ptr<Collective> collective = nullptr) : collective_(std::move(collective)) {}
  void Set(std::shared_ptr<Collective> collective) { collective_ = std::move(collective); }
  absl::StatusOr<std::string> OpenStore() override { return std::string("127.0.0.1:1"); }
  absl::StatusOr<std::shared_ptr<Collective>> Join(const GroupMembership&) override { return collective_; }
  void CloseStore() override {}

 private:
  std::shared_ptr<Collective> collective_;
};

class RunningSession {
 public:
  RunningSession(
      const FakeCoordinator& coordinator, GroupFactory& groups, const std::string& name = "w0",
      const std::function<void(SessionOptions&)>& adjust = [](SessionOptions&) {})
      : session_(Options(coordinator, name, adjust), groups), thread_([this] { status_ = session_.Run(); }) {}
  ~RunningSession() {
    session_.Stop(absl::ZeroDuration());
    if (thread_.joinable()) thread_.join();
  }

  void Stop(absl::Duration grace) { session_.Stop(grace); }
  // Of Run.
  absl::Status Wait() {
    thread_.join();
    return status_;
  }

 private:
  static SessionOptions Options(const FakeCoordinator& coordinator, const std::string& name,
                                const std::function<void(SessionOptions&)>& adjust) {
    SessionOptions options;
    options.worker = name;
    options.host = "host";
    options.backends = {"gloo"};
    options.link.coordinator = coordinator.address();
    options.link.backoff.initial = absl::Milliseconds(1);
    options.link.backoff.max = absl::Milliseconds(20);
    options.stuck = [](const std::string& reason) { ADD_FAILURE() << "stuck: " << reason; };
    adjust(options);
    return options;
  }

  Session session_;
  absl::Status status_;
  std::thread thread_;
};

// Commands of one run.
class Commands {
 public:
  v1::Command Next(int64_t generation = 1) {
    v1::Command command;
    command.set_command_id(++id_);
    command.set_run("runs/r");
    command.set_generation(generation);
    command.set_last_part(true);
    command.mutable_deadline()->set_seconds(20);
    return command;
  }
  v1::Command Inspect(const std::string& path) {
    v1::Command command = Next();
    command.clear_run();
    command.clear_generation();
    command.mutable_inspect_model()->set_path(path);
    return command;
  }
  v1::Command Join(int rank, int world_size, int64_t generation = 1) {
    v1::Command command = Next(generation);
    command.mutable_join_group()->set_rank(rank);
    command.mutable_join_group()->set_world_size(world_size);
    return command;
  }
  v1::Command Load(const std::string& path) {
    v1::Command command = Next();
    command.mutable_load_model()->set_path(path);
    return command;
  }
  v1::Command Count(const std::map<std::string, int64_t>& targets) {
    v1::Command command = Next();
    *command.mutable_count_update()->mutable_spec() = Spec(1, targets);
    return command;
  }
  v1::Command Update(int64_t version, const std::map<std::string, int64_t>& targets) {
    v1::Command command = Next();
    *command.mutable_update_masks()->mutable_spec() = Spec(version, targets);
    return command;
  }
  v1::Command Report(v1::ReportMode mode = v1::REPORT_MODE_SHARD_COUNTS) {
    v1::Command command = Next();
    command.mutable_report_sparsity()->set_mode(mode);
    return command;
  }
  v1::Command Gather(const std::string& parameter, int64_t begin, int64_t end, bool mask = false) {
    v1::Command command = Next();
    command.mutable_gather_parameter()->set_parameter(parameter);
    command.mutable_gather_parameter()->set_begin(begin);
    command.mutable_gather_parameter()->set_end(end);
    command.mutable_gather_parameter()->set_mask(mask);
    return command;
  }
  v1::Command Leave() {
    v1::Command command = Next();
    command.mutable_leave_group();
    return command;
  }

 private:
  static v1::UpdateSpec Spec(int64_t version, const std::map<std::string, int64_t>& targets) {
    v1::UpdateSpec spec;
    spec.set_version(version);
    spec.set_method(v1::SELECTION_METHOD_MAGNITUDE);
    spec.set_rule(v1::SELECTION_RULE_EXACT);
    spec.set_monotone(true);
    for (const auto& [name, target] : targets) {
      spec.add_parameters(name);
      spec.add_targets(target);
    }
    return spec;
  }

  int64_t id_ = 0;
};

// The one row of a report of this parameter.
inline v1::ParameterSparsity RowOf(const FakeSession::Answer& answer, const std::string& name) {
  for (const v1::ResultPage& page : answer.pages) {
    for (const v1::ParameterSparsity& row : page.report().parameters()) {
      if (row.name() == name) return row;
    }
  }
  ADD_FAILURE() << "no row of " << name;
  return {};
}

}  // namespace espalier::testing
