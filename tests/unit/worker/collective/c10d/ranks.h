#pragma once

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/worker/collective/collective_contract.h"
#include "worker/collective/c10d/join.h"
#include "worker/collective/c10d/rendezvous_store.h"

namespace espalier::testing {

// Runs `body` in one process a rank, forked before this one has any thread; each must end with a passing test. Rank 0
// opens the store; the others are told where.
class Ranks {
 public:
  using Body = std::function<void(JoinOptions options)>;

  Ranks(int world_size, const Body& body) {
    int addresses[2];
    EXPECT_EQ(pipe(addresses), 0);
    for (int rank = 0; rank < world_size; ++rank) {
      const pid_t child = fork();
      EXPECT_GE(child, 0);
      if (child != 0) {
        children_.push_back(child);
        continue;
      }
      std::unique_ptr<RendezvousStore> store;
      JoinOptions options;
      options.rank = rank;
      options.world_size = world_size;
      options.generation = 3;
      options.timeout = absl::Seconds(30);
      char text[64] = {};
      if (rank == 0) {
        auto opened = RendezvousStore::Open();
        EXPECT_OK(opened);
        store = *std::move(opened);
        options.store_address = store->address();
        options.store_address.copy(text, sizeof(text) - 1);
        for (int other = 1; other < world_size; ++other) EXPECT_EQ(write(addresses[1], text, sizeof(text)), 64);
      } else {
        EXPECT_EQ(read(addresses[0], text, sizeof(text)), 64);
        options.store_address = text;
      }
      body(options);
      // Other ranks may still be asking the store: it lives as long as the group. Nothing of the parent is torn down.
      fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    close(addresses[0]);
    close(addresses[1]);
  }

  ~Ranks() {
    for (const pid_t child : children_) {
      if (child == 0) continue;
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

  // Waits for the end of a rank; answers its exit code, or minus the signal.
  int Wait(int rank) {
    int status = 0;
    pid_t& child = children_[static_cast<size_t>(rank)];
    EXPECT_EQ(waitpid(child, &status, 0), child);
    child = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Waits until the rank has stopped itself.
  void WaitStopped(int rank) {
    int status = 0;
    const pid_t child = children_[static_cast<size_t>(rank)];
    EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
    EXPECT_TRUE(WIFSTOPPED(status));
  }

 private:
  std::vector<pid_t> children_;
};

}  // namespace espalier::testing
