#include "worker/select/on_device.h"

#include <bit>

#include "worker/shard/dtype.h"

namespace espalier {
namespace {

DeviceElements ElementsOf(const Magnitudes& values) {
  // The passes called here only read.
  return {const_cast<std::byte*>(values.bytes.data()), static_cast<int>(DtypeSize(values.dtype)), values.size()};
}

// What is below a threshold and what equals it, but for the elements of `first`.
struct Compared {
  Bitmask below;
  Bitmask equal;
};

Compared Compare(Accelerator& device, const Magnitudes& values, uint64_t threshold, const Bitmask* first) {
  Compared compared{Bitmask(values.size(), false), Bitmask(values.size(), false)};
  device.Compare(ElementsOf(values), threshold, values.format().nan, compared.below.words().data(),
                 compared.equal.words().data());
  for (size_t w = 0; first != nullptr && w < first->words().size(); ++w) {
    compared.below.words()[w] &= first->words()[w];
    compared.equal.words()[w] &= first->words()[w];
  }
  return compared;
}

}  // namespace

void AddOnDevice(Accelerator& device, const Magnitudes& values, const RadixPass& pass, const Bitmask* first,
                 Histogram& histogram) {
  const uint64_t low = pass.prefix << (pass.width + pass.shift);
  const DevicePass counted{.low = low,
                           .last = low + ((uint64_t{1} << (pass.width + pass.shift)) - 1),
                           .nan = values.format().nan,
                           .shift = pass.shift,
                           .bins = static_cast<int64_t>(pass.bins())};
  std::vector<uint64_t> bins(pass.bins());
  device.Histogram(ElementsOf(values), counted, first == nullptr ? nullptr : first->words().data(), bins.data());
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    if (bins[bin] != 0) histogram.Add(bin, static_cast<int64_t>(bins[bin]));
  }
}

OrderCounts CountAtOnDevice(Accelerator& device, const Magnitudes& values, uint64_t threshold, const Bitmask* first) {
  const Compared compared = Compare(device, values, threshold, first);
  return {.below = compared.below.CountKept(), .equal = compared.equal.CountKept()};
}

// The device compares; which ties stay depends on all words before, and is decided here, for one word in 64 elements.
Bitmask BuildMaskOnDevice(Accelerator& device, const Magnitudes& values, uint64_t threshold, int64_t kept_ties,
                          const Bitmask* first) {
  const Compared compared = Compare(device, values, threshold, first);
  Bitmask mask = first == nullptr ? Bitmask(values.size()) : *first;
  for (size_t w = 0; w < mask.words().size(); ++w) {
    uint64_t ties = compared.equal.words()[w];
    if (const int64_t found = std::popcount(ties); found <= kept_ties) {
      kept_ties -= found;
      ties = 0;
    }
    for (; ties != 0 && kept_ties > 0; --kept_ties) ties &= ties - 1;
    mask.words()[w] &= ~(compared.below.words()[w] | ties);
  }
  return mask;
}

}  // namespace espalier
