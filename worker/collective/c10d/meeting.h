#pragma once

// How the ranks of a c10d group meet, whatever its back end. For the files of this folder: it includes LibTorch, whose headers
// cost half a minute for each file that does.

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/collective/collective.h"

// LibTorch last: its headers define macros of common names.
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace espalier {

// One rank's way to the store of rank 0.
struct Meeting {
  int rank = 0;
  int world_size = 1;
  std::string store_address;  // host:port
  int64_t generation = 0;     // groups of other generations at the same store never meet
  absl::Duration timeout = absl::Seconds(60);
};

// LibTorch takes zero for "for ever".
std::chrono::milliseconds ToMilliseconds(absl::Duration duration);

// The first line, since LibTorch appends a back trace, without a place in LibTorch's sources and without its emoji.
std::string FirstLine(const std::exception& error);

bool SaysTimeout(absl::string_view text);

// CANNOT_BIND: this rank cannot listen for the others at `address`, an address or an interface.
absl::Status CannotBind(absl::string_view address, absl::string_view why);

// INVARIANT: the rank, the world size or the store's address make no sense.
absl::Status CheckMeeting(const Meeting& meeting);

// Dials the store and says there that this rank has come. Throws what LibTorch throws.
c10::intrusive_ptr<c10d::Store> DialStore(const Meeting& meeting);

// Returns when all ranks have come to the store. Throws when the time is over.
void AwaitArrivals(c10d::Store& store, const Meeting& meeting);

// COLLECTIVE_TIMEOUT or WORKER_LOST, with the ranks that the store has not seen; `store` may be null.
absl::Status CannotJoin(const Meeting& meeting, absl::string_view why, c10d::Store* store);

// A first all-reduce, of a sum that is only right when every rank was heard exactly once.
absl::Status SelfTest(Collective& group);

}  // namespace espalier
