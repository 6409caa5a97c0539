#include "server/store/journal.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using testing::HasReason;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::TempDir;
using testing::WriteFile;

JournalRecord Row(std::string kind, std::string run, std::string key, std::string value) {
  return {std::move(kind), std::move(run), std::move(key), std::move(value)};
}

class AnyJournalTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Journal> Open() {
    if (!GetParam()) return NewMemoryJournal();
    auto journal = Journal::Open(dir_.path());
    EXPECT_OK(journal);
    return *std::move(journal);
  }
  TempDir dir_;
};

TEST_P(AnyJournalTest, LaterRowsReplaceEarlierOnesAndMoveToTheEnd) {
  auto journal = Open();
  ASSERT_OK(journal->Append({Row("run", "a", "", "1"), Row("run", "b", "", "2")}));
  ASSERT_OK(journal->Append({Row("run", "a", "", "3")}));
  EXPECT_THAT(journal->Read(), ElementsAre(Row("run", "b", "", "2"), Row("run", "a", "", "3")));
  EXPECT_EQ(journal->writes(), 3);
}

TEST_P(AnyJournalTest, ErasesOneRowOrAWholeRun) {
  auto journal = Open();
  ASSERT_OK(journal->Append(
      {Row("run", "a", "", "1"), Row("event", "a", "1", "x"), Row("event", "a", "2", "y"), Row("run", "b", "", "2")}));
  ASSERT_OK(journal->Append({{"event", "a", "1", "", true}}));
  EXPECT_EQ(journal->Read().size(), 3u);
  ASSERT_OK(journal->Append({{"", "a", "", "", true}}));
  EXPECT_THAT(journal->Read(), ElementsAre(Row("run", "b", "", "2")));
}

INSTANTIATE_TEST_SUITE_P(Stores, AnyJournalTest, ::testing::Bool());

TEST(JournalTest, SurvivesReopeningWithAnyBytes) {
  TempDir dir;
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const std::vector<JournalRecord> rows = {Row("k\0\"'", "r", bytes, bytes + bytes), Row("empty", "", "", "")};
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(dir.path()));
    if (round > 0) {
      EXPECT_EQ(journal->Read(), rows);
    }
    ASSERT_OK(journal->Append(rows));
  }
}

TEST(JournalTest, SecondOpenerIsRefused) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(dir.path()));
  EXPECT_THAT(Journal::Open(dir.path()),
              HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, HasSubstr("another coordinator")));
}

TEST(JournalTest, UnwritablePlaceIsNamed) {
  TempDir dir;
  WriteFile(dir / "file", "x");
  EXPECT_THAT(Journal::Open(dir / "file/state"),
              HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, HasSubstr(dir / "file/state")));
}

// What Append acknowledged is there after kill -9, whatever the moment.
TEST(JournalTest, AcknowledgedRowsSurviveKill) {
  for (int round = 0; round < 5; ++round) {
    TempDir dir;
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto journal = Journal::Open(dir.path());
      for (int i = 0; journal.ok(); ++i) {
        if (!(*journal)->Append({Row("n", "", absl::StrCat(i), "v")}).ok()) break;
        if (write(pipe_fds[1], "x", 1) != 1) break;
      }
      _exit(1);
    }
    close(pipe_fds[1]);
    int acknowledged = 0;
    char byte = 0;
    while (acknowledged < 20 + round * 7 && read(pipe_fds[0], &byte, 1) == 1) ++acknowledged;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(pipe_fds[0], &byte, 1) == 1) ++acknowledged;
    close(pipe_fds[0]);
    ASSERT_GE(acknowledged, 20);
    ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(dir.path()));
    EXPECT_GE(journal->Read().size(), static_cast<size_t>(acknowledged));
  }
}

// A flipped bit in the file is found, or lies where nothing is stored; it is never read as something else.
TEST(JournalTest, FlippedBitsAreNeverAccepted) {
  TempDir dir;
  std::vector<JournalRecord> rows;
  for (int i = 0; i < 40; ++i)
    rows.push_back(Row("event", "r", absl::StrCat(i), std::string(100, static_cast<char>('a' + i % 26))));
  {
    ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(dir.path()));
    ASSERT_OK(journal->Append(rows));
  }
  const std::string good = ReadFile(dir / "journal.sqlite");
  ASSERT_FALSE(good.empty());
  std::mt19937 random(20261201);
  int found = 0;
  for (int i = 0; i < 200; ++i) {
    TempDir copy;
    std::string bad = good;
    bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    WriteFile(copy / "journal.sqlite", bad);
    const auto journal = Journal::Open(copy.path());
    if (journal.ok()) {
      EXPECT_EQ((*journal)->Read(), rows) << "flip " << i;
    } else {
      ++found;
    }
  }
  EXPECT_GT(found, 20);
}

TEST(JournalTest, TruncationIsFound) {
  TempDir dir;
  {
    ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(dir.path()));
    for (int i = 0; i < 200; ++i)
      ASSERT_OK(journal->Append({Row("event", "r", absl::StrCat(i), std::string(200, 'x'))}));
  }
  const std::string good = ReadFile(dir / "journal.sqlite");
  for (size_t size : {good.size() / 2, good.size() - 4096, good.size() - 1}) {
    TempDir copy;
    WriteFile(copy / "journal.sqlite", good.substr(0, size));
    EXPECT_THAT(Journal::Open(copy.path()), HasReason(v1::ERROR_REASON_JOURNAL_CORRUPT)) << size;
  }
}

TEST(JournalTest, DeadRowsAreCompacted) {
  TempDir dir;
  const auto size = [&dir] { return std::filesystem::file_size(dir.path() + "/journal.sqlite"); };
  const std::string large(100'000, 'x');
  {
    ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(dir.path()));
    for (int i = 0; i < 400; ++i) {  // 40 MB, of which 1 MB stands
      ASSERT_OK(journal->Append({Row("run", "r", absl::StrCat(i % 10), absl::StrCat(i, large))}));
    }
    EXPECT_EQ(journal->Read().size(), 10u);
  }
  EXPECT_LT(size(), 10'000'000u);
  for (int round = 0; round < 2; ++round) {
    ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(dir.path()));
    const auto rows = journal->Read();
    ASSERT_EQ(rows.size(), 10u);
    EXPECT_EQ(rows.back(), Row("run", "r", "9", "399" + large));
    ASSERT_OK(journal->Append({rows.back()}));
  }
}

TEST(JournalTest, WhatStandsIsNotRewritten) {
  TempDir dir;
  const std::string large(100'000, 'x');
  std::vector<JournalRecord> rows;
  for (int i = 100; i < 200; ++i) rows.push_back(Row("run", "r", absl::StrCat(i), absl::StrCat(i, large)));
  {
    ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(dir.path()));
    ASSERT_OK(journal->Append(rows));
    // Erased, they are dead.
    ASSERT_OK(journal->Append({Row("run", "s", "", "stays")}));
    EXPECT_EQ(journal->Read().size(), 101u);
    ASSERT_OK(journal->Append({{"", "r", "", "", true}}));
  }
  ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(dir.path()));
  EXPECT_THAT(journal->Read(), ElementsAre(Row("run", "s", "", "stays")));
  EXPECT_LT(std::filesystem::file_size(dir.path() + "/journal.sqlite"), 1'000'000u);
}

}  // namespace
}  // namespace espalier
