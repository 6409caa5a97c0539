#include "server/run/run_store.h"

#include "proto/support/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/run/cluster.h"

namespace espalier::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class RunStoreTest : public ::testing::Test {
 protected:
  using Sink = RecordingSink<v1::RunEvent>;

  RunEntry& Made() {
    auto made = store_->Create({}, [](const v1::Run&) { return std::vector<JournalRecord>(); });
    EXPECT_OK(made);
    return **made;
  }

  // As after a restart.
  RunEntry& Reloaded(const std::string& name) {
    store_ = std::make_unique<RunStore>(journal_, clock_, NullObserver::Instance(), RunStore::Options{});
    EXPECT_OK(store_->Load(journal_.Read()));
    return *store_->Find(name);
  }

  std::shared_ptr<Sink> Watch(RunEntry& entry, int64_t resume_revision) {
    auto sink = std::make_shared<Sink>();
    store_->Watch(entry, resume_revision, sink);
    return sink;
  }

  FakeClock clock_;
  ShakyJournal journal_;
  std::unique_ptr<RunStore> store_ =
      std::make_unique<RunStore>(journal_, clock_, NullObserver::Instance(), RunStore::Options{});
};

TEST_F(RunStoreTest, AnEventThatCouldNotBeJournaledIsAnEndOfHistory) {
  RunEntry& entry = Made();
  journal_.failing = true;
  store_->ForceCommit(entry, {"OperationEnded", "lost", {}}, {});
  journal_.failing = false;
  ASSERT_OK(store_->Commit(entry, {"StateChanged", "third", {}}, {}));
  ASSERT_OK(store_->Commit(entry, {"StateChanged", "fourth", {}}, {}));

  RunEntry& loaded = Reloaded(entry.run.name());
  EXPECT_EQ(loaded.run.revision(), 4);
  const auto early = Watch(loaded, 1);
  EXPECT_THAT(early->messages, IsEmpty());
  EXPECT_THAT(early->status, ::testing::Optional(HasReason(v1::ERROR_REASON_HISTORY_COMPACTED)));
  const auto late = Watch(loaded, 2);
  ASSERT_THAT(late->messages, SizeIs(2));
  EXPECT_EQ(late->messages[0].message(), "third");
  EXPECT_EQ(late->messages[1].revision(), 4);
}

TEST_F(RunStoreTest, ProgressIsToldToWhoWatchesAndNotKept) {
  RunEntry& entry = Made();
  const auto watcher = Watch(entry, 1);
  const int64_t rows = journal_.writes();
  v1::RunProgress progress;
  progress.set_phase("save");
  store_->Tell(entry, {"Progress", "save 1 of 2 bytes", progress},
               [](v1::Run& run) { run.add_operations()->set_bytes_done(1); });
  ASSERT_THAT(watcher->messages, SizeIs(1));
  EXPECT_EQ(watcher->messages[0].revision(), 1);
  EXPECT_EQ(watcher->messages[0].progress().phase(), "save");
  EXPECT_EQ(watcher->messages[0].run().operations(0).bytes_done(), 1);
  EXPECT_EQ(entry.run.operations(0).bytes_done(), 1);
  EXPECT_EQ(journal_.writes(), rows);
  EXPECT_THAT(Watch(entry, 1)->messages, IsEmpty());
}

TEST_F(RunStoreTest, WhoReadsSlowlyMissesProgressAndNoEvent) {
  RunEntry& entry = Made();
  const auto watcher = Watch(entry, 1);
  watcher->room = 0;
  ASSERT_OK(store_->Commit(entry, {"StateChanged", "second", {}}, {}));
  store_->Tell(entry, {"Progress", "", v1::RunProgress()}, [](v1::Run&) {});
  EXPECT_THAT(watcher->messages, IsEmpty());
  watcher->room = 10;
  ASSERT_OK(store_->Commit(entry, {"StateChanged", "third", {}}, {}));
  ASSERT_THAT(watcher->messages, SizeIs(2));
  EXPECT_EQ(watcher->messages[0].message(), "second");
}

}  // namespace
}  // namespace espalier::testing
