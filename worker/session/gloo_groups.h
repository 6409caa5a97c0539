#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/session/group.h"

namespace espalier {

// Where this rank meets its peers.
struct GlooPlace {
  std::string bind_address;  // IPv4
  std::string interface;     // a network interface instead; wins when it is given
};

// Groups of Gloo, through LibTorch. It is 450 MB, so it lives in a module of its own that is loaded when the first group of
// more than one rank forms: a worker that works alone starts at once and stays small.
class GlooGroups final : public GroupFactory {
 public:
  // `place` is asked once, when the module is loaded.
  explicit GlooGroups(std::function<absl::StatusOr<GlooPlace>()> place) : place_(std::move(place)) {}

  absl::StatusOr<std::string> OpenStore() override;
  absl::StatusOr<std::shared_ptr<Collective>> Join(const GroupMembership& membership) override;
  void CloseStore() override;

 private:
  absl::StatusOr<GroupFactory*> Loaded();

  const std::function<absl::StatusOr<GlooPlace>()> place_;
  std::unique_ptr<GroupFactory> module_;
};

// The module's one symbol, by which it is found.
inline constexpr char kGlooModuleSymbol[] = "espalier_make_gloo_groups";
using MakeGlooGroupsFn = GroupFactory* (*)(const GlooPlace& place);

}  // namespace espalier
