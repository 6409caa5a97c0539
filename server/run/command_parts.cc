#include "server/run/command_parts.h"

#include <utility>

namespace espalier {
namespace {

using google::protobuf::RepeatedPtrField;

// Collects parts; each has the command's frame.
class Parts {
 public:
  explicit Parts(const v1::Command& command) : frame_(command) {
    frame_.clear_op();
    Next();
  }

  // The op of a part with room for `bytes` more.
  v1::Command& Room(size_t bytes) {
    if (used_ > 0 && used_ + bytes > kPartBytes) Next();
    used_ += bytes;
    return parts_.back();
  }

  std::vector<v1::Command> Take() { return std::move(parts_); }

 private:
  void Next() {
    parts_.push_back(frame_);
    used_ = 0;
  }

  v1::Command frame_;
  std::vector<v1::Command> parts_;
  size_t used_ = 0;
};

// Moves the elements of a list into parts, one by one; `get` finds the list in a part.
template <typename List, typename Get>
void Spread(const List& list, Parts& parts, Get get) {
  for (const auto& element : list) {
    *get(parts.Room(element.ByteSizeLong() + 8)).Add() = element;
  }
}

std::vector<v1::Command> SplitUpdate(const v1::Command& command) {
  const bool count = command.has_count_update();
  const v1::UpdateSpec& spec = count ? command.count_update().spec() : command.update_masks().spec();
  const auto part_of = [count](v1::Command& part) -> v1::UpdateSpec& {
    return count ? *part.mutable_count_update()->mutable_spec() : *part.mutable_update_masks()->mutable_spec();
  };
  Parts parts(command);
  v1::UpdateSpec head = spec;
  head.clear_parameters();
  head.clear_targets();
  part_of(parts.Room(head.ByteSizeLong())) = head;
  for (const std::string& name : spec.parameters()) part_of(parts.Room(name.size() + 8)).add_parameters(name);
  for (const int64_t target : spec.targets()) part_of(parts.Room(10)).add_targets(target);
  return parts.Take();
}

std::vector<v1::Command> SplitPublish(const v1::Command& command) {
  const v1::PublishCheckpoint& op = command.publish_checkpoint();
  Parts parts(command);
  v1::PublishCheckpoint head = op;
  head.clear_checksums();
  head.clear_report();
  v1::Plan& plan = *head.mutable_plan();
  plan.clear_modifiers();
  plan.clear_updates();
  *parts.Room(head.ByteSizeLong()).mutable_publish_checkpoint() = head;
  const auto part_of = [](v1::Command& part) { return part.mutable_publish_checkpoint(); };
  Spread(
      op.plan().modifiers(),
      parts, [&](v1::Command & part) -> auto& { return *part_of(part)->mutable_plan()->mutable_modifiers(); });
  Spread(
      op.plan().updates(),
      parts, [&](v1::Command & part) -> auto& { return *part_of(part)->mutable_plan()->mutable_updates(); });
  Spread(
      op.checksums(), parts, [&](v1::Command & part) -> auto& { return *part_of(part)->mutable_checksums(); });
  Spread(
      op.report(), parts, [&](v1::Command & part) -> auto& { return *part_of(part)->mutable_report(); });
  return parts.Take();
}

}  // namespace

std::vector<v1::Command> SplitCommand(const v1::Command& command) {
  if (command.ByteSizeLong() <= kPartBytes) return {command};
  if (command.has_count_update() || command.has_update_masks()) return SplitUpdate(command);
  if (command.has_publish_checkpoint()) return SplitPublish(command);
  return {command};
}

}  // namespace espalier
