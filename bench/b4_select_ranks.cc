// B4: exact selection of half of all linears of a model across W processes, against gathering each parameter on every
// rank and finding the threshold there by std::nth_element.
//
//   b4_select_ranks MODEL [WORLD_SIZE ...]

#include <array>
#include <cstdio>

#include "bench/measure.h"
#include "bench/processes.h"
#include "bench/select_model.h"
#include "worker/checkpoint/load.h"

namespace espalier::bench {
namespace {

// Seconds between two barriers, so that the slowest rank counts.
template <class Body>
double Lap(Collective& group, Body body) {
  Check(group.Barrier({"lap", 0}));
  return Seconds([&] {
    body();
    Check(group.Barrier({"lap", 0}));
  });
}

void GatherAndFind(const HalfUpdate& update, Collective& group, std::vector<std::byte>& in, std::vector<std::byte>& out,
                   std::vector<uint32_t>& work) {
  for (size_t i = 0; i < update.inputs.size(); ++i) {
    const SelectInput& input = update.inputs[i];
    const auto width = static_cast<size_t>(DtypeSize(input.parameter->dtype()));
    // Padded to equal sizes, as an all-gather wants them.
    const ShardRange first = RowShard(input.parameter->shape(), 0, group.world_size());
    in.resize(static_cast<size_t>(first.size()) * width);
    out.resize(in.size() * static_cast<size_t>(group.world_size()));
    std::copy(input.values.begin(), input.values.end(), in.begin());
    Check(group.AllGather({"baseline", 0}, in, absl::MakeSpan(out)));
    const auto full = static_cast<size_t>(NumElements(input.parameter->shape())) * width;
    Use(KthByNthElement(input.parameter->dtype(), absl::MakeConstSpan(out).first(full),
                        update.spec.targets(static_cast<int>(i)), work));
  }
}

void Measure(const std::string& model, Collective& group) {
  const Checkpoint checkpoint = Check(Checkpoint::Open(model));
  const ShardTable shards = Check(LoadShards(checkpoint, group.rank(), group.world_size()));
  const HalfUpdate update(shards);
  constexpr int kOurRuns = 5;
  const int baseline_runs = update.elements > int64_t{500'000'000} ? 1 : 3;
  std::vector<double> ours;
  const int64_t sent_before = group.bytes_sent();
  for (int run = 0; run <= kOurRuns; ++run) {
    const double seconds = Lap(group, [&] { Use(Check(Select(update.spec, update.inputs, group, 1))); });
    if (run > 0) ours.push_back(seconds);
  }
  const int64_t sent = (group.bytes_sent() - sent_before) / (kOurRuns + 1);
  std::vector<double> baseline;
  std::vector<std::byte> in, out;
  std::vector<uint32_t> work;
  for (int run = 0; run < baseline_runs; ++run) {
    baseline.push_back(Lap(group, [&] { GatherAndFind(update, group, in, out, work); }));
  }
  if (group.rank() != 0) return;
  const std::string what = "select-" + std::to_string(update.inputs.size()) + "-linears-" +
                           std::to_string(update.elements / 1'000'000) + "M-W" + std::to_string(group.world_size());
  PrintRatio("B4", what + "-vs-gather+nth_element", Median(baseline), Median(ours), 10);
  const double share = 100.0 * static_cast<double>(sent) / static_cast<double>(update.model_bytes);
  std::printf("B4 %s-wire-percent ratio=%.4f target=<0.1000 %s baseline=%lldB ours=%lldB\n", what.c_str(), share,
              share < 0.1 ? "PASS" : "FAIL", static_cast<long long>(update.model_bytes), static_cast<long long>(sent));
  std::fflush(stdout);
}

}  // namespace
}  // namespace espalier::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: b4_select_ranks MODEL [WORLD_SIZE ...]\n");
    return 2;
  }
  std::vector<int> world_sizes;
  for (int i = 2; i < argc; ++i) world_sizes.push_back(std::atoi(argv[i]));
  if (world_sizes.empty()) world_sizes = {2, 4};
  const std::string model = argv[1];
  for (const int world_size : world_sizes) {
    espalier::bench::RunRanks(world_size, [&](espalier::Collective& group) { espalier::bench::Measure(model, group); });
  }
  return 0;
}
