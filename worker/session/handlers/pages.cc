#include "worker/session/handlers/pages.h"

#include <algorithm>

namespace espalier {

void AppendCountPages(const UpdateCounts& counts, std::vector<v1::ResultPage>& pages) {
  // Three varints of at most 10 bytes a parameter.
  constexpr size_t kPerPage = kPageBytes / 32;
  for (size_t first = 0; first < counts.counts.size(); first += kPerPage) {
    const size_t end = std::min(first + kPerPage, counts.counts.size());
    v1::CountPage& page = *pages.emplace_back().mutable_counts();
    page.set_first(static_cast<int64_t>(first));
    for (size_t i = first; i < end; ++i) {
      page.add_counts(counts.counts[i]);
      if (i < counts.zeros.size()) page.add_zeros(counts.zeros[i]);
      if (i < counts.violations.size()) page.add_violations(counts.violations[i]);
    }
  }
}

void MoveChecksumsToPages(v1::SaveShardsResult& result, std::vector<v1::ResultPage>& pages) {
  int64_t index = 0;
  Paginate(
      result.checksums(), pages,
      [&index](v1::ResultPage& page, const v1::RangeChecksum& checksum) {
        if (!page.has_checksums()) page.mutable_checksums()->set_first(index);
        *page.mutable_checksums()->add_checksums() = checksum;
        ++index;
      },
      [](const v1::RangeChecksum& checksum) { return checksum.ByteSizeLong() + 8; });
  result.clear_checksums();
}

}  // namespace espalier
