#include <utility>

#include "proto/support/broken_pipe.h"
#include "proto/support/status_macros.h"
#include "worker/collective/c10d/c10d_group.h"
#include "worker/collective/c10d/join.h"
#include "worker/collective/c10d/meeting.h"

// LibTorch last: its headers define macros of common names.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace espalier {
namespace {

// Messages are sent from where they are.
class GlooGroup final : public C10dGroup {
 public:
  using C10dGroup::C10dGroup;

 private:
  at::Tensor Place(const at::Tensor& host, bool) override { return host; }
  void Fetch(const at::Tensor&, at::Tensor&) override {}
  // A collective was given its time-out when it began, and ends at it; a message learns of it here.
  void Await(c10d::Work& work, Kind kind, Milliseconds timeout) override {
    work.wait(kind == Kind::kMessage ? timeout : kNoTimeout);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> JoinGloo(const JoinOptions& options) {
  const Meeting meeting{options.rank, options.world_size, options.store_address, options.generation, options.timeout};
  ESPALIER_RETURN_IF_ERROR(CheckMeeting(meeting));
  // Gloo writes without MSG_NOSIGNAL: whoever sends before Gloo's own thread has read that the peer is gone would die of it.
  IgnoreBrokenPipes();

  std::shared_ptr<::gloo::transport::Device> device;
  try {
    device = options.interface.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(options.bind_address)
                                       : c10d::ProcessGroupGloo::createDeviceForInterface(options.interface);
  } catch (const std::exception& error) {
    return CannotBind(options.interface.empty() ? options.bind_address : options.interface, FirstLine(error));
  }

  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = DialStore(meeting);
    auto settings = c10d::ProcessGroupGloo::Options::create(ToMilliseconds(options.timeout));
    settings->devices.push_back(device);
    settings->threads = 1;  // one executor, one call at a time
    auto group = std::make_unique<GlooGroup>(
        meeting, options.compare_tags,
        c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.world_size, settings));
    ESPALIER_RETURN_IF_ERROR(SelfTest(*group));
    return group;
  } catch (const std::exception& error) {
    return CannotJoin(meeting, FirstLine(error), store.get());
  }
}

}  // namespace espalier
