#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "proto/support/broken_pipe.h"
#include "proto/support/status_macros.h"
#include "worker/collective/c10d/c10d_group.h"
#include "worker/collective/c10d/join.h"
#include "worker/collective/c10d/meeting.h"

// LibTorch last: its headers define macros of common names.
#include <ATen/ops/empty_like.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace espalier {
namespace {

using Nccl = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

// Messages pass through the GPU's memory. What NCCL itself waits for has no end; the deadline is kept here, and whoever gives
// up aborts the group, after which its kernels touch no buffer any more.
class NcclGroup final : public C10dGroup {
 public:
  NcclGroup(const Meeting& meeting, bool compare_tags, at::Device device, const Nccl& nccl)
      : C10dGroup(meeting, compare_tags, nccl), device_(device), nccl_(nccl) {}
  // Not shutdown(), which waits for peers that may be gone.
  ~NcclGroup() override { Abort(); }

  void Cancel(const absl::Status& cause) override {
    C10dGroup::Cancel(cause);
    Abort();
  }

 private:
  at::Tensor Place(const at::Tensor& host, bool filled) override {
    if (filled) return host.to(device_);
    return at::empty_like(host, host.options().device(device_));
  }

  void Fetch(const at::Tensor& placed, at::Tensor& host) override { host.copy_(placed); }

  void Await(c10d::Work& work, Kind, Milliseconds timeout) override {
    constexpr std::chrono::microseconds kLongestPause{500};
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (std::chrono::microseconds pause{5}; !work.isCompleted(); pause = std::min(2 * pause, kLongestPause)) {
      if (std::chrono::steady_clock::now() > deadline) {
        Abort();
        throw std::runtime_error("timed out");
      }
      std::this_thread::sleep_for(pause);
    }
    if (const std::exception_ptr failure = work.exception(); failure != nullptr) {
      Abort();
      std::rethrow_exception(failure);
    }
    work.wait();  // what is read next is read after it, in the order of the device
  }

  // An abort waits for the device, which may be what hangs: after a while it is left to a thread of its own.
  void Abort() {
    constexpr std::chrono::seconds kPatience{10};
    const auto ended = std::make_shared<std::promise<void>>();
    std::thread([nccl = nccl_, ended] {
      try {
        nccl->abort();
      } catch (const std::exception&) {
        // It has failed already, which is what an abort is for.
      }
      ended->set_value();
    }).detach();
    ended->get_future().wait_for(kPatience);
  }

  const at::Device device_;
  const Nccl nccl_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> JoinNccl(const JoinOptions& options) {
  const Meeting meeting{options.rank, options.world_size, options.store_address, options.generation, options.timeout};
  ESPALIER_RETURN_IF_ERROR(CheckMeeting(meeting));
  IgnoreBrokenPipes();
  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = DialStore(meeting);
    // NCCL waits without an end for ranks that do not come.
    AwaitArrivals(*store, meeting);
    auto settings = c10d::ProcessGroupNCCL::Options::create();
    settings->timeout = ToMilliseconds(absl::InfiniteDuration());
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(options.gpu));
    auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, options.rank, options.world_size, settings);
    // One communicator for all calls, made now: otherwise the first message of each pair would wait to make one.
    nccl->setBoundDeviceId(device);
    nccl->eagerConnectSingleDevice(device);
    auto group = std::make_unique<NcclGroup>(meeting, options.compare_tags, device, nccl);
    ESPALIER_RETURN_IF_ERROR(SelfTest(*group));
    return group;
  } catch (const std::exception& error) {
    return CannotJoin(meeting, FirstLine(error), store.get());
  }
}

}  // namespace espalier
