#include "client/cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "client/cli/pidfd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"

namespace espalier::cli {
namespace {

using ::espalier::testing::HasReason;
using ::espalier::testing::ReadFile;
using ::espalier::testing::TempDir;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class ChildProcessTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<ChildProcess>> Shell(const std::string& script, std::vector<int> inherited = {}) {
    ChildOptions options;
    options.name = "child";
    options.program = "/bin/sh";
    options.arguments = {"-c", script};
    options.log_path = dir_ / "child.log";
    options.inherited = std::move(inherited);
    return ChildProcess::Start(options);
  }
  std::string Log() { return ReadFile(dir_ / "child.log"); }

  static ExitState Wait(ChildProcess& child) {
    pollfd fd = {child.pidfd(), POLLIN, 0};
    poll(&fd, 1, 20'000);
    EXPECT_TRUE(child.Poll().has_value());
    return child.Poll().value_or(ExitState());
  }
  // So many bytes of a pipe, or those that came in time.
  static std::string ReadWithin20s(int fd, size_t bytes) {
    std::string out;
    pollfd readable = {fd, POLLIN, 0};
    char byte;
    while (out.size() < bytes && poll(&readable, 1, 20'000) == 1 && read(fd, &byte, 1) == 1) out += byte;
    return out;
  }
  static bool Alive(pid_t pid) { return kill(pid, 0) == 0; }

  TempDir dir_;
};

TEST_F(ChildProcessTest, LogsAndExits) {
  ASSERT_OK_AND_ASSIGN(const auto child, Shell("echo out; echo err >&2; exit 3"));
  const ExitState exit = Wait(*child);
  EXPECT_EQ(exit.code, 3);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_EQ(exit.Describe(), "exited with code 3");
  EXPECT_EQ(Log(), "out\nerr\n");
}

TEST_F(ChildProcessTest, SaysWhichSignalEndedIt) {
  ASSERT_OK_AND_ASSIGN(const auto child, Shell("kill -9 $$"));
  EXPECT_EQ(Wait(*child).Describe(), "was killed by signal 9 (Killed)");
}

TEST_F(ChildProcessTest, HasThisEnvironmentButForItsOwn) {
  ASSERT_EQ(setenv("ESPALIER_TEST_KEPT", "kept", 1), 0);
  ASSERT_EQ(setenv("ESPALIER_TEST_SET", "theirs", 1), 0);
  ChildOptions options;
  options.name = "child";
  options.program = "/bin/sh";
  options.arguments = {"-c", "echo $ESPALIER_TEST_KEPT $ESPALIER_TEST_SET; env | grep -c ESPALIER_TEST_"};
  options.environment = {"ESPALIER_TEST_SET=own"};
  options.log_path = dir_ / "child.log";
  ASSERT_OK_AND_ASSIGN(const auto child, ChildProcess::Start(options));
  EXPECT_EQ(Wait(*child).code, 0);
  EXPECT_EQ(Log(), "kept own\n2\n");
}

TEST_F(ChildProcessTest, RefusesAProgramThatIsNotThere) {
  ChildOptions options;
  options.name = "child";
  options.program = dir_ / "nothing";
  options.log_path = dir_ / "child.log";
  EXPECT_THAT(ChildProcess::Start(options), HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr(options.program)));
  options.log_path = dir_ / "no/such/folder.log";
  EXPECT_THAT(ChildProcess::Start(options), HasReason(v1::ERROR_REASON_STORAGE_UNWRITABLE, HasSubstr("--state-dir")));
}

TEST_F(ChildProcessTest, KeepsOnlyTheDescriptorsItIsGiven) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // inheritable, as a careless library makes them
  const UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  ASSERT_OK_AND_ASSIGN(const auto child,
                       Shell(absl::StrCat("echo told >&", ends[1], "; test ! -e /proc/$$/fd/", ends[0]), {ends[1]}));
  EXPECT_EQ(Wait(*child).code, 0);
  char text[16] = {};
  EXPECT_EQ(read(read_end.get(), text, sizeof text), 5);
  EXPECT_STREQ(text, "told\n");
}

TEST_F(ChildProcessTest, LeadsItsOwnGroupAndHasNoSignalsBlocked) {
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &old);
  // exec: a shell blocks signals itself while it forks.
  const auto child = Shell("cut -d' ' -f1,5 /proc/$$/stat; exec grep SigBlk /proc/self/status");
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ASSERT_OK(child);
  Wait(**child);
  EXPECT_THAT(Log(), HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(Log(), HasSubstr(absl::StrCat((*child)->pid(), " ", (*child)->pid())));
}

TEST_F(ChildProcessTest, StopsAllInOrder) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const std::string loop = absl::StrCat("; echo ready >/dev/fd/", ready[1], "; while :; do sleep 0.05; done");
  ASSERT_OK_AND_ASSIGN(const auto polite, Shell("trap 'exit 7' TERM" + loop, {ready[1]}));
  ASSERT_OK_AND_ASSIGN(const auto stubborn, Shell("trap '' TERM" + loop, {ready[1]}));
  ASSERT_OK_AND_ASSIGN(const auto stopped, Shell("kill -STOP $$"));
  EXPECT_EQ(ReadWithin20s(ready[0], 12), "ready\nready\n");
  close(ready[0]);
  close(ready[1]);
  StopAll({polite.get(), stubborn.get(), stopped.get()}, absl::Milliseconds(500));
  EXPECT_EQ(polite->Poll()->code, 7);
  EXPECT_EQ(stubborn->Poll()->signal, SIGKILL);
  EXPECT_THAT(stopped->Poll()->signal, AnyOf(SIGTERM, SIGKILL));  // whether it stopped before it was told
  EXPECT_FALSE(Alive(polite->pid()) || Alive(stubborn->pid()) || Alive(stopped->pid()));
}

TEST_F(ChildProcessTest, DestructionKills) {
  pid_t pid = 0;
  {
    ASSERT_OK_AND_ASSIGN(const auto child, Shell("trap '' TERM; while :; do sleep 0.05; done"));
    pid = child->pid();
    EXPECT_TRUE(Alive(pid));
  }
  EXPECT_FALSE(Alive(pid));
}

// The parent is killed, and cannot clean up: the kernel ends the child.
TEST_F(ChildProcessTest, DiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const auto child = Shell("trap '' TERM; while :; do sleep 0.05; done");
    const pid_t pid = child.ok() ? (*child)->pid() : 0;
    if (write(write_end.get(), &pid, sizeof pid) != sizeof pid) _exit(1);
    while (true) pause();
  }
  write_end.Reset();
  pid_t grandchild = 0;
  ASSERT_EQ(read(read_end.get(), &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  ASSERT_GT(grandchild, 0);
  const UniqueFd pidfd(PidfdOpen(grandchild));
  ASSERT_TRUE(pidfd.valid());
  ASSERT_EQ(kill(parent, SIGKILL), 0);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  pollfd ended = {pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 10'000), 1) << "process " << grandchild << " outlived its parent";
}

TEST(TailOf, GivesTheLastLines) {
  const TempDir dir;
  const std::string path = dir / "log";
  EXPECT_EQ(TailOf(path, 3), "");
  espalier::testing::WriteFile(path, "a\nb\nc\nd\n");
  EXPECT_EQ(TailOf(path, 2), "c\nd");
  EXPECT_EQ(TailOf(path, 9), "a\nb\nc\nd");
  espalier::testing::WriteFile(path, std::string(100'000, 'x') + "\nend\n");
  EXPECT_EQ(TailOf(path, 1), "end");
  EXPECT_LE(TailOf(path, 9).size(), 16u << 10);
}

TEST(FindProgram, LooksOnlyBesideUs) {
  // sh is on every PATH and not beside this test.
  EXPECT_THAT(FindProgram("sh"), HasReason(v1::ERROR_REASON_INVARIANT, HasSubstr("libexec/espalier/sh")));
  ASSERT_OK_AND_ASSIGN(const std::string self, FindProgram("client_cli_test"));
  EXPECT_EQ(self.substr(0, 1), "/");
}

}  // namespace
}  // namespace espalier::cli
