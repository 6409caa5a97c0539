#pragma once

// An accelerator made of the host: every element goes through the functions that the CUDA kernels are made of.

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "worker/device/accelerator.h"
#include "worker/device/element_ops.h"

namespace espalier {

class HostAccelerator final : public Accelerator {
 public:
  // Passes made so far, over all instances.
  static int64_t& passes() {
    static int64_t count = 0;
    return count;
  }

  std::string name() const override { return "host"; }
  int number() const override { return 0; }

  std::shared_ptr<std::byte> Obtain(size_t bytes) override {
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    std::memset(data, 0, bytes);
    return {data, [](std::byte* p) { std::free(p); }};
  }

  void Apply(DeviceElements elements, const uint64_t* keep) override {
    ForEach(elements, [&](auto& element, int64_t i) { element = Masked(element, BitOf(keep, i)); });
  }

  int64_t CountZeros(DeviceElements elements, uint64_t magnitude) override {
    int64_t zeros = 0;
    ForEach(elements, [&]<class T>(const T& element, int64_t) { zeros += IsZero(element, static_cast<T>(magnitude)); });
    return zeros;
  }

  int64_t CountAbove(DeviceElements elements, uint64_t magnitude, uint64_t bound) override {
    int64_t above = 0;
    ForEach(elements, [&]<class T>(const T& element, int64_t) {
      above += IsAbove(element, static_cast<T>(magnitude), static_cast<T>(bound));
    });
    return above;
  }

  void Verify(DeviceElements elements, const uint64_t* keep, uint64_t magnitude, int64_t& zeros,
              int64_t& violations) override {
    zeros = violations = 0;
    ForEach(elements, [&]<class T>(const T& element, int64_t i) {
      const bool zero = IsZero(element, static_cast<T>(magnitude));
      zeros += zero;
      violations += !zero && !BitOf(keep, i);
    });
  }

  void NonZeros(DeviceElements elements, uint64_t magnitude, uint64_t* keep) override {
    Clear(elements, keep);
    ForEach(elements, [&]<class T>(const T& element, int64_t i) {
      SetBit(keep, i, !IsZero(element, static_cast<T>(magnitude)));
    });
  }

  void Histogram(DeviceElements elements, const DevicePass& pass, const uint64_t* keep, uint64_t* bins) override {
    ForEach(elements, [&]<class T>(const T& element, int64_t i) {
      const T image = ImageOf(element, static_cast<T>(pass.nan));
      if (!IsWithin(image, static_cast<T>(pass.low), static_cast<T>(pass.last))) return;
      if (keep == nullptr || BitOf(keep, i)) ++bins[BinOf(image, static_cast<T>(pass.low), pass.shift)];
    });
  }

  void Compare(DeviceElements elements, uint64_t threshold, uint64_t nan, uint64_t* below, uint64_t* equal) override {
    Clear(elements, below);
    Clear(elements, equal);
    ForEach(elements, [&]<class T>(const T& element, int64_t i) {
      const T image = ImageOf(element, static_cast<T>(nan));
      SetBit(below, i, image < static_cast<T>(threshold));
      SetBit(equal, i, image == static_cast<T>(threshold));
    });
  }

 private:
  static void Clear(DeviceElements elements, uint64_t* words) {
    std::memset(words, 0, static_cast<size_t>((elements.count + 63) / 64) * sizeof(uint64_t));
  }
  static void SetBit(uint64_t* words, int64_t i, bool bit) { words[i >> 6] |= uint64_t{bit} << (i & 63); }

  // body(element, index); elements may stand at any address.
  template <class Body>
  static void ForEach(DeviceElements elements, Body body) {
    ++passes();
    const auto run = [&]<class T>(T element) {
      auto* at = static_cast<std::byte*>(elements.data);
      for (int64_t i = 0; i < elements.count; ++i, at += sizeof(T)) {
        std::memcpy(&element, at, sizeof(T));
        const T before = element;
        body(element, i);
        if (element != before) std::memcpy(at, &element, sizeof(T));
      }
    };
    switch (elements.width) {
      case 1:
        return run(uint8_t{});
      case 2:
        return run(uint16_t{});
      case 4:
        return run(uint32_t{});
      default:
        return run(uint64_t{});
    }
  }
};

}  // namespace espalier
