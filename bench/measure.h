#pragma once

// What the programs of bench/ share: medians of runs taken by turns, and the line they print.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace espalier::bench {

inline double Seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median seconds of each body. They run by turns, so that what disturbs the machine disturbs all of them; the first
// turn does not count.
inline std::vector<double> MedianSeconds(const std::vector<std::function<void()>>& bodies, int turns = 11) {
  std::vector<std::vector<double>> taken(bodies.size());
  for (int turn = 0; turn <= turns; ++turn) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      const double seconds = Seconds(bodies[i]);
      if (turn > 0) taken[i].push_back(seconds);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& each : taken) medians.push_back(Median(each));
  return medians;
}

// `baseline` and `ours` are seconds for the same work; the ratio says how often ours fits into the baseline.
inline void PrintRatio(const char* row, const std::string& what, double baseline, double ours, double target) {
  const double ratio = baseline / ours;
  std::printf("%s %s ratio=%.2f target=>=%.2f %s baseline=%.6fs ours=%.6fs\n", row, what.c_str(), ratio, target,
              ratio >= target ? "PASS" : "FAIL", baseline, ours);
  std::fflush(stdout);
}

// Keeps the compiler from leaving out work whose result nobody looks at.
template <class T>
void Use(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

}  // namespace espalier::bench
