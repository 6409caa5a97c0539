#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/session/group.h"

namespace espalier {

// Back ends of c10d, as workers offer them to the coordinator.
inline constexpr absl::string_view kGloo = "gloo";
inline constexpr absl::string_view kNccl = "nccl";

// Where this rank meets its peers.
struct GroupPlace {
  std::string bind_address;  // IPv4
  std::string interface;     // a network interface instead; wins when it is given
  int gpu = 0;               // of NCCL: the device that messages pass through
};

// Groups of one back end, through LibTorch. It is 450 MB, and far more with CUDA, so each back end lives in a module of its own
// that is loaded when the first group of more than one rank forms: a worker that works alone starts at once and stays small.
class C10dGroups final : public GroupFactory {
 public:
  // `place` is asked once, when the module is loaded.
  C10dGroups(absl::string_view backend, std::function<absl::StatusOr<GroupPlace>()> place)
      : backend_(backend), place_(std::move(place)) {}

  absl::StatusOr<std::string> OpenStore() override;
  absl::StatusOr<std::shared_ptr<Collective>> Join(const GroupMembership& membership) override;
  void CloseStore() override;

 private:
  absl::StatusOr<GroupFactory*> Loaded();

  const std::string backend_;
  const std::function<absl::StatusOr<GroupPlace>()> place_;
  std::unique_ptr<GroupFactory> module_;
};

// A module's one symbol, by which it is found.
inline constexpr char kGroupModuleSymbol[] = "espalier_make_groups";
using MakeGroupsFn = GroupFactory* (*)(const GroupPlace& place);

}  // namespace espalier
