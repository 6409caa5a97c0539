// B7: loading a checkpoint by W ranks against reading the same bytes once with pread, W threads each its share, all from a
// warm page cache. The plain readers end, as ours do, with the bytes in memory (one fresh mapping with large pages each);
// a second line compares with readers that fill one small buffer again and again, which is less work than any load.
//
//   b7_load MODEL [WORLD_SIZE]

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "worker/checkpoint/load.h"

namespace espalier::bench {
namespace {

constexpr int64_t kPlainBytes = int64_t{16} << 20;

void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void OnRanks(int world, const std::function<void(int)>& body) {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back(body, rank);
  for (std::thread& rank : ranks) rank.join();
}

// `keep`: into memory that holds the whole share, else into one buffer.
void PlainRead(const Checkpoint& checkpoint, int rank, int world, bool keep) {
  int64_t total = 0;
  for (const auto& file : checkpoint.files()) total += (file->size() + world - 1) / world;
  const auto size = static_cast<size_t>(keep ? total : kPlainBytes);
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, size, MADV_HUGEPAGE);
  char* out = static_cast<char*>(memory);
  for (const auto& file : checkpoint.files()) {
    const int fd = open(file->path().c_str(), O_RDONLY | O_CLOEXEC);
    const int64_t share = (file->size() + world - 1) / world;
    const int64_t end = std::min(file->size(), share * (rank + 1));
    for (int64_t at = share * rank; at < end;) {
      const ssize_t n = pread(fd, out, static_cast<size_t>(std::min(kPlainBytes, end - at)), at);
      if (n <= 0) std::abort();
      at += n;
      if (keep) out += n;
    }
    close(fd);
  }
  munmap(memory, size);
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: b7_load MODEL [WORLD_SIZE]\n");
    return 2;
  }
  const int world = argc > 2 ? std::atoi(argv[2]) : 2;
  const auto checkpoint = Checkpoint::Open(argv[1]);
  if (!checkpoint.ok()) Fail(checkpoint.status());
  const auto load = [&] {
    OnRanks(world, [&](int rank) {
      const auto shards = LoadShards(*checkpoint, rank, world);
      if (!shards.ok()) Fail(shards.status());
      Use(*shards);
    });
  };
  const auto plain = [&](bool keep) {
    return [&, keep] { OnRanks(world, [&](int rank) { PlainRead(*checkpoint, rank, world, keep); }); };
  };
  // Both that need fresh memory run after the one that needs none: what the kernel, or a hypervisor, does with memory just
  // given back then meets both alike.
  const std::vector<double> medians = MedianSeconds({plain(false), plain(true), plain(false), load}, 7);
  const double gigabytes = static_cast<double>(checkpoint->description().total_bytes()) * 1e-9;
  const std::string what = "load " + std::to_string(gigabytes).substr(0, 5) + "GB W=" + std::to_string(world);
  PrintRatio("B7", what + " against pread into memory", medians[1], medians[3], 0.8);
  PrintRatio("B7", what + " against pread into one buffer", medians[0], medians[3], 0.8);

  // All ranks are in this process, so that the shards are the model.
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double peak = static_cast<double>(usage.ru_maxrss) * 1024e-9;
  const double limit = gigabytes * 1.15 + 0.4;
  std::printf("B7 %s memory ratio=%.2f target=>=1.00 %s baseline=%.3fGB ours=%.3fGB\n", what.c_str(), limit / peak,
              peak <= limit ? "PASS" : "FAIL", limit, peak);
  return 0;
}

}  // namespace
}  // namespace espalier::bench

int main(int argc, char** argv) {
  return espalier::bench::Main(argc, argv);
}
