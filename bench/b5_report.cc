// B5 and B6: the sparsity report by SHARD_COUNTS against GATHER, and GATHER against a raw c10d all-gather of the same bytes,
// on a model whose linear layers are pruned to half.
//
//   b5_report MODEL [WORLD_SIZE]

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <utility>

#include "bench/processes.h"
#include "worker/checkpoint/load.h"
#include "worker/mask/kernels.h"
#include "worker/report/report.h"
#include "worker/shard/dtype.h"

namespace espalier::bench {
namespace {

constexpr int kRuns = 5;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename F>
double Median(Collective& group, int runs, F body) {
  std::vector<double> times;
  for (int i = 0; i <= runs; ++i) {
    Check(group.Barrier({"lap", 0}));
    const double start = Seconds();
    body();
    Check(group.Barrier({"lap", 0}));
    if (i > 0) times.push_back(Seconds() - start);  // the first is the warm-up
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int64_t PeakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Random halves: counting zeros costs most where they are least predictable.
MaskTable PruneHalf(ShardTable& shards) {
  MaskTable masks;
  std::mt19937_64 random(static_cast<uint64_t>(shards.rank()) + 1);
  for (const std::string& name : shards.names()) {
    const Shard shard = Check(shards.Lookup(name));
    if (shard.parameter->layer_kind() != v1::LAYER_KIND_LINEAR) continue;
    auto mask = std::make_shared<Bitmask>(shard.range.size());
    for (int64_t i = 0; i < shard.range.size(); ++i) {
      if (random() & 1) mask->Set(i, false);
    }
    ApplyMask(shard.parameter->dtype(), shard.storage->bytes(), *mask);
    masks[name] = ShardMask{mask, 1, {}, -1};
  }
  return masks;
}

void RawAllGather(const ShardTable& shards, Collective& group, std::vector<std::byte>& in,
                  std::vector<std::byte>& out) {
  for (const std::string& name : shards.names()) {
    const Shard shard = Check(shards.Lookup(name));
    const ShardRange first = RowShard(shard.parameter->shape(), 0, group.world_size());
    const size_t bytes = static_cast<size_t>(first.size() * DtypeSize(shard.parameter->dtype()));
    const auto live = std::as_const(*shard.storage).bytes();
    in.resize(std::max(in.size(), bytes));
    out.resize(std::max(out.size(), bytes * static_cast<size_t>(group.world_size())));
    absl::Span<const std::byte> from = live;
    if (live.size() != bytes) {  // padded, as _allgather_base wants it
      std::copy(live.begin(), live.end(), in.begin());
      from = absl::MakeConstSpan(in).subspan(0, bytes);
    }
    Check(group.AllGather({"raw", 0}, from,
                          absl::MakeSpan(out).subspan(0, bytes * static_cast<size_t>(group.world_size()))));
  }
}

void Measure(const std::string& model, Collective& group) {
  const Checkpoint checkpoint = Check(Checkpoint::Open(model));
  ShardTable shards = Check(LoadShards(checkpoint, group.rank(), group.world_size()));
  const MaskTable masks = PruneHalf(shards);
  int64_t largest = 0;
  for (const std::string& name : shards.names()) {
    const v1::Parameter& parameter = *Check(shards.Lookup(name)).parameter;
    largest = std::max(largest, NumElements(parameter.shape()) * DtypeSize(parameter.dtype()));
  }
  const auto report = [&](v1::ReportMode mode) {
    ReportOptions options;
    options.mode = mode;
    Check(ComputeReport(shards, masks, group, options).status());
  };
  const int64_t sent_before = group.bytes_sent();
  const double counts = Median(group, kRuns, [&] { report(v1::REPORT_MODE_SHARD_COUNTS); });
  const int64_t wire = (group.bytes_sent() - sent_before) / (kRuns + 1);
  const int64_t before = PeakBytes();
  const double gather = Median(group, 3, [&] { report(v1::REPORT_MODE_GATHER); });
  std::vector<int64_t> extra = {PeakBytes() - before};
  Check(group.AllReduce({"peak", 0}, absl::MakeSpan(extra), ReduceOp::kMax));
  std::vector<std::byte> in, out;
  const double raw = Median(group, 3, [&] { RawAllGather(shards, group, in, out); });
  if (group.rank() != 0) return;
  const auto verdict = [](bool pass) { return pass ? "PASS" : "FAIL"; };
  std::printf(
      "B5 report W=%d counts-vs-gather ratio=%.1f target>=20.0 %s baseline=%.3fs ours=%.4fs wire=%.1f B a tensor\n",
      group.world_size(), gather / counts, verdict(gather / counts >= 20), gather, counts,
      static_cast<double>(wire) / static_cast<double>(shards.names().size()));
  std::printf("B6 gather W=%d vs-raw-all-gather ratio=%.2f target>=0.90 %s baseline=%.3fs ours=%.3fs\n",
              group.world_size(), raw / gather, verdict(raw / gather >= 0.9), raw, gather);
  std::printf("B6 gather W=%d extra-memory ratio=%.2f target<=2.00 %s baseline=%.1fMB ours=%.1fMB\n",
              group.world_size(), static_cast<double>(extra[0]) / static_cast<double>(largest),
              verdict(extra[0] <= 2 * largest), static_cast<double>(largest) / 1e6,
              static_cast<double>(extra[0]) / 1e6);
}

}  // namespace
}  // namespace espalier::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: b5_report MODEL [WORLD_SIZE]\n");
    return 2;
  }
  const std::string model = argv[1];
  espalier::bench::RunRanks(argc > 2 ? std::atoi(argv[2]) : 2,
                            [&](espalier::Collective& group) { espalier::bench::Measure(model, group); });
  return 0;
}
