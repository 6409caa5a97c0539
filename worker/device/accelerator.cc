#include "worker/device/accelerator.h"

#include <atomic>
#include <functional>
#include <map>
#include <utility>

#include "proto/support/mutex.h"

namespace espalier {
namespace {

// What has been obtained and not given back, by its first address. Outlives every storage.
struct Registry {
  std::atomic<Accelerator*> used = nullptr;
  std::unique_ptr<Accelerator> owned;
  Mutex mutex;
  std::map<const std::byte*, size_t, std::less<>> ranges ABSL_GUARDED_BY(mutex);
};

Registry& Obtained() {
  static Registry& registry = *new Registry;
  return registry;
}

}  // namespace

void UseAccelerator(std::unique_ptr<Accelerator> accelerator) {
  Registry& registry = Obtained();
  registry.used = accelerator.get();
  registry.owned = std::move(accelerator);
}

bool AcceleratorInUse() {
  return Obtained().used != nullptr;
}

std::shared_ptr<std::byte> ObtainFromAccelerator(size_t bytes) {
  Registry& registry = Obtained();
  std::shared_ptr<std::byte> memory = registry.used.load()->Obtain(bytes);
  if (memory == nullptr) return nullptr;
  std::byte* const begin = memory.get();
  MutexLock lock(registry.mutex);
  registry.ranges[begin] = bytes;
  return {begin, [memory = std::move(memory)](std::byte* p) {
            MutexLock forgotten(Obtained().mutex);
            Obtained().ranges.erase(p);
          }};
}

Accelerator* AcceleratorOf(const void* address) {
  Registry& registry = Obtained();
  Accelerator* const used = registry.used;
  if (used == nullptr) return nullptr;
  const auto* const at = static_cast<const std::byte*>(address);
  MutexLock lock(registry.mutex);
  auto after = registry.ranges.upper_bound(at);
  if (after == registry.ranges.begin()) return nullptr;
  --after;
  return at < after->first + after->second ? used : nullptr;
}

}  // namespace espalier
