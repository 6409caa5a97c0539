#pragma once

// W ranks of a Gloo group as processes of one benchmark.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/c10d/join.h"
#include "worker/collective/c10d/rendezvous_store.h"
#include "worker/collective/collective.h"

namespace espalier::bench {

// Ends the process on an error: a benchmark has nobody to report to.
inline void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Check(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

// Forks one process a rank, before any thread exists, and runs `body` in each. Ends the program when a rank failed.
inline void RunRanks(int world_size, const std::function<void(Collective&)>& body) {
  std::vector<std::array<int, 2>> pipes(static_cast<size_t>(world_size));
  for (auto& ends : pipes) {
    if (pipe(ends.data()) != 0) std::abort();
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t child = fork();
    if (child < 0) std::abort();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    std::unique_ptr<RendezvousStore> store;
    std::string address;
    if (rank == 0) {
      store = Check(RendezvousStore::Open());
      address = store->address();
      for (int other = 1; other < world_size; ++other) {
        if (write(pipes[static_cast<size_t>(other)][1], address.data(), address.size()) < 0) std::abort();
      }
    } else {
      std::array<char, 256> buffer{};
      const ssize_t got = read(pipes[static_cast<size_t>(rank)][0], buffer.data(), buffer.size());
      if (got <= 0) std::abort();
      address.assign(buffer.data(), static_cast<size_t>(got));
    }
    JoinOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.store_address = address;
    auto group = Check(JoinGloo(options));
    group->SetDeadline(absl::Minutes(10));
    body(*group);
    Check(group->Barrier({"end", 0}));
    std::fflush(stdout);
    _exit(0);
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed = failed || status != 0;
  }
  if (failed) std::exit(1);
}

}  // namespace espalier::bench
