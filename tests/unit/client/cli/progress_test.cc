#include "client/cli/progress.h"

#include <sstream>

#include "client/cli/run_view.h"
#include "client/cli/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace espalier::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class ProgressTest : public ::testing::Test {
 protected:
  Progress Make(const Terminal& terminal) {
    return Progress(out_, terminal, [this] { return now_; });
  }
  std::string Take() {
    std::string text = out_.str();
    out_.str("");
    return text;
  }
  std::ostringstream out_;
  absl::Duration now_ = absl::Seconds(100);
};

TEST_F(ProgressTest, PlainLinesAtTheEndOfAPhaseAndEveryTenSeconds) {
  Progress progress = Make(Terminal());
  progress.Step("load", 0, 2'000'000, "bytes");
  now_ += absl::Seconds(9);
  progress.Step("load", 500'000, 2'000'000, "bytes");
  progress.Tick();
  EXPECT_EQ(Take(), "");
  now_ += absl::Seconds(2);
  progress.Tick();
  EXPECT_EQ(Take(), "load: 500.0 kB / 2.0 MB after 11.0 s\n");
  progress.Tick();
  EXPECT_EQ(Take(), "");
  now_ += absl::Seconds(1);
  progress.Step("select", 3, 210, "parameters");
  EXPECT_EQ(Take(), "load: 2.0 MB in 12.0 s\n");
  progress.End(false);
  EXPECT_EQ(Take(), "select: stopped at 3 / 210 parameters\n");
}

TEST_F(ProgressTest, RedrawsOneLineAndRestoresTheCursor) {
  Terminal terminal;
  terminal.interactive = true;
  terminal.utf8 = true;
  {
    Progress progress = Make(terminal);
    progress.Step("load", 1, 4, "parameters");
    const std::string first = Take();
    EXPECT_THAT(first, HasSubstr("\x1b[?25l\r\x1b[2K  load"));
    EXPECT_THAT(first, HasSubstr("━"));
    EXPECT_THAT(first, Not(HasSubstr("\n")));
    now_ += absl::Milliseconds(10);
    progress.Step("load", 2, 4, "parameters");
    EXPECT_EQ(Take(), "") << "redrawn too often";
    now_ += absl::Milliseconds(60);
    progress.Step("load", 3, 4, "parameters");
    EXPECT_THAT(Take(), HasSubstr("3 / 4 parameters"));
    progress.Line("a note");
    EXPECT_THAT(Take(), HasSubstr("\r\x1b[2K"
                                  "a note\n\r\x1b[2K  load"));
    progress.Step("save", 0, 10, "bytes");
    EXPECT_THAT(Take(), HasSubstr("4 parameters"));
  }
  EXPECT_THAT(Take(), EndsWith("\n\x1b[?25h")) << "the cursor stays hidden";
}

TEST_F(ProgressTest, LinesNeverReachTheEdge) {
  for (int width = 20; width < 160; width += 7) {
    Terminal terminal;
    terminal.interactive = true;
    terminal.width = width;
    Progress progress = Make(terminal);
    Take();
    progress.Step("select 12/99", 123'456'789, 999'999'999, "parameters");
    std::string line = Take();
    line = line.substr(line.rfind("\x1b[2K") + 4);
    EXPECT_LT(DisplayWidth(line), static_cast<size_t>(width)) << line;
  }
}

TEST_F(ProgressTest, PlainTextWithoutUtf8OrColour) {
  Terminal terminal;
  terminal.interactive = true;
  Progress progress = Make(terminal);
  progress.Step("load", 1, 2, "bytes");
  const std::string line = Take();
  EXPECT_THAT(line, HasSubstr("==="));
  EXPECT_THAT(line, Not(HasSubstr("\x1b[32m")));
}

TEST_F(ProgressTest, ShowsARunsEvents) {
  Progress progress = Make(Terminal());
  RunView view(progress, /*show_queue=*/true);
  v1::RunEvent event;
  event.mutable_run()->set_name("runs/a");
  event.mutable_run()->set_state(v1::Run::STATE_QUEUED);
  event.mutable_run()->set_state_reason("need 4, have 3 idle");
  event.mutable_run()->set_updates_total(3);
  view.OnEvent(event);
  EXPECT_THAT(Take(), HasSubstr("need 4, have 3 idle"));
  event.mutable_run()->set_state(v1::Run::STATE_STARTING);
  view.OnEvent(event);
  event.mutable_run()->set_state(v1::Run::STATE_RUNNING);
  view.OnEvent(event);
  EXPECT_EQ(Take(), "load: done in 0.00 s\n");
  event.mutable_run()->set_updates_done(1);
  view.OnEvent(event);
  EXPECT_EQ(Take(), "select 1/3: done in 0.00 s\n");
  for (const char* phase : {"select", "vote"}) {
    event.mutable_progress()->set_phase(phase);
    event.mutable_progress()->set_done(1);
    event.mutable_progress()->set_total(5);
    event.mutable_progress()->set_unit("parameters");
    view.OnEvent(event);
  }
  event.clear_progress();
  event.set_type("ReportMade");
  view.OnEvent(event);
  EXPECT_EQ(Take(), "select 2/3: 5 parameters in 0.00 s\n");
  event.set_type("StateChanged");
  event.mutable_run()->set_state_reason("held; finish ends it");
  event.mutable_run()->set_updates_done(3);
  view.OnEvent(event);
  EXPECT_EQ(Take(), "runs/a is held; finish ends it\n");
  event.mutable_progress()->set_phase("report");
  view.OnEvent(event);
  // A save of it is cancelled, and then one made.
  for (const auto state : {v1::Operation::STATE_CANCELLED, v1::Operation::STATE_SUCCEEDED}) {
    event.mutable_progress()->set_phase("save");
    view.OnEvent(event);
    event.clear_progress();
    event.set_type("OperationEnded");
    v1::Operation& save = *event.mutable_run()->add_operations();
    save.set_name(absl::StrCat("runs/a/operations/", state));
    save.set_state(state);
    view.OnEvent(event);
    EXPECT_EQ(Take(), state == v1::Operation::STATE_SUCCEEDED ? "save: done in 0.00 s\n" : "save: stopped\n");
  }
  event.set_type("StateChanged");
  // The finish meets an output that exists.
  event.mutable_run()->set_state(v1::Run::STATE_SAVING);
  view.OnEvent(event);
  event.mutable_run()->set_state(v1::Run::STATE_RUNNING);
  event.mutable_run()->set_state_reason("held again");
  *event.mutable_run()->mutable_error() = ToProto(MakeError(v1::ERROR_REASON_OUTPUT_EXISTS, "out exists"));
  view.OnEvent(event);
  EXPECT_EQ(Take(), "save: stopped\nout exists\nruns/a is held again\n");
  event.mutable_run()->set_state(v1::Run::STATE_SAVING);
  view.OnEvent(event);
  event.mutable_run()->set_state(v1::Run::STATE_FAILED);
  *event.mutable_run()->mutable_error() = ToProto(MakeError(v1::ERROR_REASON_WORKER_LOST, "rank 1 (w1) is gone"));
  view.OnEvent(event);
  EXPECT_EQ(Take(), "save: stopped\n");
  EXPECT_THAT(OutcomeOf(view.run()),
              espalier::testing::HasReason(v1::ERROR_REASON_WORKER_LOST, HasSubstr("runs/a FAILED: rank 1 (w1)")));
}

}  // namespace
}  // namespace espalier::cli
