#pragma once

#include <cstddef>
#include <vector>

#include "espalier/v1/worker_service.pb.h"

namespace espalier {

// Pages stay below this: gRPC's default limit of a message is 4 MiB, and a heartbeat waits for at most one page.
inline constexpr size_t kPageBytes = 1 << 20;

// Puts items into pages. `append(page, item)` adds one to a page; `size(item)` is about what it adds.
template <typename Items, typename Append, typename Size>
void Paginate(const Items& items, std::vector<v1::ResultPage>& pages, Append append, Size size) {
  size_t room = 0;
  for (const auto& item : items) {
    const size_t bytes = size(item);
    if (pages.empty() || bytes > room) {
      pages.emplace_back();
      room = kPageBytes;
    }
    append(pages.back(), item);
    room -= std::min(room, bytes);
  }
}

// Counts of an update, parallel to its parameters.
struct UpdateCounts {
  std::vector<int64_t> counts;
  std::vector<int64_t> zeros;       // empty for CountUpdate
  std::vector<int64_t> violations;  // likewise
};
void AppendCountPages(const UpdateCounts& counts, std::vector<v1::ResultPage>& pages);

// Moves the checksums of a save out of its result.
void MoveChecksumsToPages(v1::SaveShardsResult& result, std::vector<v1::ResultPage>& pages);

}  // namespace espalier
