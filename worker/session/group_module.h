#pragma once

// What a module of C10dGroups is made of: its one file includes this and exports kGroupModuleSymbol. Symbols but those of
// LibTorch and its own come from the program.

#include <memory>
#include <string>
#include <utility>

#include "proto/support/status_macros.h"
#include "worker/collective/c10d/join.h"
#include "worker/collective/c10d/rendezvous_store.h"
#include "worker/session/c10d_groups.h"

namespace espalier {

class GroupModule final : public GroupFactory {
 public:
  using JoinFn = absl::StatusOr<std::unique_ptr<Collective>> (*)(const JoinOptions& options);

  GroupModule(GroupPlace place, JoinFn join) : place_(std::move(place)), join_(join) {}

  absl::StatusOr<std::string> OpenStore() override {
    store_.reset();
    ESPALIER_ASSIGN_OR_RETURN(store_, RendezvousStore::Open(place_.bind_address));
    return store_->address();
  }

  absl::StatusOr<std::shared_ptr<Collective>> Join(const GroupMembership& membership) override {
    JoinOptions options;
    options.rank = membership.rank;
    options.world_size = membership.world_size;
    options.store_address = membership.store_address;
    options.generation = membership.generation;
    options.bind_address = place_.bind_address;
    options.interface = place_.interface;
    options.gpu = place_.gpu;
    options.timeout = membership.timeout;
    ESPALIER_ASSIGN_OR_RETURN(std::unique_ptr<Collective> collective, join_(options));
    return std::shared_ptr<Collective>(std::move(collective));
  }

  void CloseStore() override { store_.reset(); }

 private:
  const GroupPlace place_;
  const JoinFn join_;
  std::unique_ptr<RendezvousStore> store_;
};

}  // namespace espalier
