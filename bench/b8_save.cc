// B8: saving a checkpoint by W ranks - files, masks, checksums, sync, the count from the files, publishing - against W
// plain writers that write the same number of bytes to files of their own and sync them.
//
//   b8_save MODEL [WORLD_SIZE]
//
// Writes beside MODEL, so that the disk is the one that checkpoints lie on, and removes what it wrote.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <vector>

#include "bench/measure.h"
#include "tests/support/thread_collective.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/save.h"
#include "worker/mask/kernels.h"

namespace espalier::bench {
namespace {

constexpr int kTurns = 5;
constexpr size_t kPlainBytes = size_t{8} << 20;

template <typename T>
T Check(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

MaskTable PruneHalf(const ShardTable& shards) {
  MaskTable masks;
  std::mt19937_64 random(static_cast<uint64_t>(shards.rank()) + 1);
  for (const std::string& name : shards.names()) {
    const Shard shard = Check(shards.Lookup(name));
    if (shard.parameter->layer_kind() != v1::LAYER_KIND_LINEAR) continue;
    Bitmask mask(shard.range.size());
    for (uint64_t& word : mask.words()) word &= random();
    ApplyMask(shard.parameter->dtype(), shard.storage->bytes(), mask);
    masks[name].bits = std::make_shared<const Bitmask>(std::move(mask));
  }
  return masks;
}

void PlainWrite(const std::string& path, int64_t bytes, const std::vector<char>& buffer) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  for (int64_t at = 0; at < bytes;) {
    const ssize_t n = pwrite(fd, buffer.data(), std::min(buffer.size(), static_cast<size_t>(bytes - at)), at);
    if (n <= 0) std::abort();
    at += n;
  }
  if (fsync(fd) != 0) std::abort();
  close(fd);
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: b8_save MODEL [WORLD_SIZE]\n");
    return 2;
  }
  const int world = argc > 2 ? std::atoi(argv[2]) : 2;
  const Checkpoint checkpoint = Check(Checkpoint::Open(argv[1]));
  const std::string folder = checkpoint.directory() + "/../b8-" + std::to_string(getpid());
  const std::string output = folder + "/out";
  std::filesystem::create_directories(folder);

  std::vector<std::optional<ShardTable>> shards(static_cast<size_t>(world));
  std::vector<MaskTable> masks(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    const auto r = static_cast<size_t>(rank);
    shards[r] = Check(LoadShards(checkpoint, rank, world));
    masks[r] = PruneHalf(*shards[r]);
  }
  testing::ThreadGroup group(world);
  for (int rank = 0; rank < world; ++rank) group.rank(rank).SetDeadline(absl::Minutes(10));

  int64_t bytes = 0;
  const auto save = [&] {
    std::vector<std::unique_ptr<CheckpointSaver>> savers(static_cast<size_t>(world));
    std::vector<v1::SaveShardsResult> saved(static_cast<size_t>(world));
    group.Run([&](Collective& collective) {
      const auto r = static_cast<size_t>(collective.rank());
      savers[r] = std::make_unique<CheckpointSaver>();
      SaveRequest request;
      request.path = output;
      request.token = "b8";
      saved[r] = Check(savers[r]->SaveShards(request, checkpoint, *shards[r], masks[r], collective));
    });
    v1::PublishCheckpoint publish;
    publish.set_path(output);
    publish.set_token("b8");
    for (const v1::SaveShardsResult& result : saved) publish.mutable_checksums()->MergeFrom(result.checksums());
    bytes = Check(savers[0]->Publish(publish)).bytes_total();
  };
  const std::vector<char> buffer(kPlainBytes, 'x');
  const auto plain = [&] {
    group.Run([&](Collective& collective) {
      PlainWrite(folder + "/plain-" + std::to_string(collective.rank()), bytes / world, buffer);
    });
  };
  std::vector<double> ours, baseline;
  for (int turn = 0; turn <= kTurns; ++turn) {
    for (const bool mine : {true, false}) {
      sync();
      const double seconds = mine ? Seconds(save) : Seconds(plain);
      if (turn > 0) (mine ? ours : baseline).push_back(seconds);  // the first is the warm-up
      std::filesystem::remove_all(folder);
      std::filesystem::create_directories(folder);
    }
  }
  std::filesystem::remove_all(folder);
  const std::string size = std::to_string(static_cast<double>(bytes) * 1e-9).substr(0, 5);
  PrintRatio("B8", "save " + size + "GB W=" + std::to_string(world) + " against plain writers", Median(baseline),
             Median(ours), 0.8);
  return 0;
}

}  // namespace
}  // namespace espalier::bench

int main(int argc, char** argv) {
  return espalier::bench::Main(argc, argv);
}
