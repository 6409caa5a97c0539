#include "worker/session/generation_gate.h"

#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::HasReason;

v1::Command Load(const std::string& run, int64_t generation) {
  v1::Command command;
  command.set_run(run);
  command.set_generation(generation);
  command.mutable_load_model();
  return command;
}

TEST(GenerationGateTest, RefusesWhatIsLowerThanTheHighestSeen) {
  GenerationGate gate;
  EXPECT_OK(gate.Admit(Load("runs/a", 3)));
  EXPECT_OK(gate.Admit(Load("runs/a", 3)));
  const absl::Status stale = gate.Admit(Load("runs/a", 2));
  EXPECT_THAT(stale, HasReason(v1::ERROR_REASON_GENERATION_STALE));
  EXPECT_EQ(MetadataOf(stale, "seen"), "3");
  EXPECT_EQ(MetadataOf(stale, "given"), "2");
  EXPECT_OK(gate.Admit(Load("runs/a", 4)));
}

TEST(GenerationGateTest, GenerationsCountWithinARun) {
  GenerationGate gate;
  EXPECT_OK(gate.Admit(Load("runs/a", 3)));
  EXPECT_OK(gate.Admit(Load("runs/b", 1)));
}

TEST(GenerationGateTest, AVoidGenerationIsOver) {  // known-bugs 37, 41
  GenerationGate gate;
  gate.Void("runs/a", 2);
  EXPECT_THAT(gate.Admit(Load("runs/a", 1)), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  EXPECT_THAT(gate.Admit(Load("runs/a", 2)), HasReason(v1::ERROR_REASON_GENERATION_STALE));
  EXPECT_OK(gate.Admit(Load("runs/a", 3)));
}

TEST(GenerationGateTest, CleaningUpIsAlwaysAdmitted) {
  GenerationGate gate;
  gate.Void("runs/a", 2);
  v1::Command leave;
  leave.set_run("runs/a");
  leave.set_generation(1);
  leave.mutable_leave_group();
  EXPECT_OK(gate.Admit(leave));
  leave.mutable_discard_checkpoint();
  EXPECT_OK(gate.Admit(leave));
}

}  // namespace
}  // namespace espalier
