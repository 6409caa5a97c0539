// libespalier_gloo.so: what GlooGroups loads. Its symbols but those of LibTorch and its own come from the program.

#include <memory>
#include <utility>

#include "proto/support/status_macros.h"
#include "worker/collective/c10d/gloo.h"
#include "worker/collective/c10d/rendezvous_store.h"
#include "worker/session/gloo_groups.h"

namespace espalier {
namespace {

class GlooModule final : public GroupFactory {
 public:
  explicit GlooModule(GlooPlace place) : place_(std::move(place)) {}

  absl::StatusOr<std::string> OpenStore() override {
    store_.reset();
    ESPALIER_ASSIGN_OR_RETURN(store_, RendezvousStore::Open(place_.bind_address));
    return store_->address();
  }

  absl::StatusOr<std::shared_ptr<Collective>> Join(const GroupMembership& membership) override {
    GlooOptions options;
    options.rank = membership.rank;
    options.world_size = membership.world_size;
    options.store_address = membership.store_address;
    options.generation = membership.generation;
    options.bind_address = place_.bind_address;
    options.interface = place_.interface;
    options.timeout = membership.timeout;
    ESPALIER_ASSIGN_OR_RETURN(std::unique_ptr<Collective> collective, JoinGloo(options));
    return std::shared_ptr<Collective>(std::move(collective));
  }

  void CloseStore() override { store_.reset(); }

 private:
  const GlooPlace place_;
  std::unique_ptr<RendezvousStore> store_;
};

}  // namespace
}  // namespace espalier

extern "C" __attribute__((visibility("default"))) espalier::GroupFactory* espalier_make_gloo_groups(
    const espalier::GlooPlace& place) {
  // Owned by the caller, across a C boundary.
  return new espalier::GlooModule(place);
}
