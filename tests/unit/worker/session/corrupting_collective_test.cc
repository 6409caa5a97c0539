#include "worker/session/corrupting_collective.h"

#include <stdlib.h>

#include <algorithm>
#include <vector>

#include "tests/support/status_matchers.h"
#include "worker/collective/single_process.h"

namespace espalier {
namespace {

TEST(CorruptingCollectiveTest, CorruptsOneChunkWhenArmed) {
  setenv("ESPALIER_FAULT", "gather_chunk=corrupt", 1);
  const std::shared_ptr<Collective> group = CorruptGathers(std::make_shared<SingleProcess>());
  const std::vector<std::byte> ones(64, std::byte{1});
  const std::vector<std::byte> zeros(64, std::byte{0});
  const int64_t sizes[] = {64};
  std::vector<std::byte> out(64);
  ASSERT_OK(group->GatherTo({"gather", 1}, 0, ones, sizes, absl::MakeSpan(out)));
  EXPECT_EQ(out, ones);
  ASSERT_OK(group->GatherTo({"gather", 1}, 0, zeros, sizes, absl::MakeSpan(out)));
  EXPECT_EQ(std::count(out.begin(), out.end(), std::byte{0}), 56);
  ASSERT_OK(group->GatherTo({"gather", 1}, 0, zeros, sizes, absl::MakeSpan(out)));
  EXPECT_EQ(out, zeros);
  unsetenv("ESPALIER_FAULT");
}

TEST(CorruptingCollectiveTest, PassesEverythingThroughOtherwise) {
  const std::shared_ptr<Collective> group = CorruptGathers(std::make_shared<SingleProcess>());
  const std::vector<std::byte> zeros(64, std::byte{0});
  const int64_t sizes[] = {64};
  std::vector<std::byte> out(64, std::byte{1});
  ASSERT_OK(group->GatherTo({"gather", 1}, 0, zeros, sizes, absl::MakeSpan(out)));
  EXPECT_EQ(out, zeros);
}

}  // namespace
}  // namespace espalier
