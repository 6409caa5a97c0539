#include "server/run/event_loop.h"

#include <future>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;

TEST(EventLoopTest, RunsInTheOrderOfPosts) {
  testing::FakeClock clock;
  EventLoop loop(clock);
  std::vector<int> order;
  loop.Post([&] {
    order.push_back(1);
    loop.Post([&] { order.push_back(3); });
  });
  loop.Post([&] { order.push_back(2); });
  loop.RunUntilIdle();
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

TEST(EventLoopTest, TimersFireInTheOrderOfTheirTimes) {
  testing::FakeClock clock;
  EventLoop loop(clock);
  std::vector<int> order;
  loop.After(absl::Seconds(2), [&] { order.push_back(2); });
  loop.After(absl::Seconds(1), [&] { order.push_back(1); });
  const EventLoop::TimerId cancelled = loop.After(absl::Seconds(1), [&] { order.push_back(9); });
  loop.Cancel(cancelled);
  loop.Cancel(cancelled);
  loop.Cancel(0);
  loop.RunUntilIdle();
  EXPECT_THAT(order, ElementsAre());
  clock.Advance(absl::Seconds(2));
  loop.RunUntilIdle();
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST(EventLoopTest, ATimerMayCancelAnotherThatIsDue) {
  testing::FakeClock clock;
  EventLoop loop(clock);
  int fired = 0;
  EventLoop::TimerId second = 0;
  loop.After(absl::Seconds(1), [&] { loop.Cancel(second); });
  second = loop.After(absl::Seconds(1), [&] { ++fired; });
  clock.Advance(absl::Seconds(1));
  loop.RunUntilIdle();
  EXPECT_EQ(fired, 0);
}

TEST(EventLoopTest, AThreadOfItsOwn) {
  EventLoop loop(SystemClock());
  loop.Start();
  std::promise<std::thread::id> posted, timed;
  loop.Post([&] {
    posted.set_value(std::this_thread::get_id());
    loop.After(absl::Milliseconds(1), [&] { timed.set_value(std::this_thread::get_id()); });
  });
  const std::thread::id id = posted.get_future().get();
  EXPECT_NE(id, std::this_thread::get_id());
  EXPECT_EQ(timed.get_future().get(), id);
  bool last = false;
  loop.Post([&] { last = true; });
  loop.Stop();
  EXPECT_TRUE(last);
  loop.Post([&] { last = false; });
  EXPECT_TRUE(last);
}

}  // namespace
}  // namespace espalier
