#include "worker/session/worker_name.h"

#include <unistd.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/support/names.h"

namespace espalier {
namespace {

std::string Default(const std::string& host, const std::map<std::string, std::string>& variables) {
  return DefaultWorkerName(
      host,
      [&](const char* name) -> std::optional<std::string> {
        const auto it = variables.find(name);
        if (it == variables.end()) return std::nullopt;
        return it->second;
      },
      "p7-1");
}

TEST(WorkerNameTest, LaunchersGiveTheLocalRank) {
  EXPECT_EQ(Default("node7", {}), "node7-p7-1");
  EXPECT_EQ(Default("node7", {{"LOCAL_RANK", "-1"}}), "node7-p7-1");
  EXPECT_EQ(Default("node7", {{"LOCAL_RANK", "0"}}), "node7-0");
  EXPECT_EQ(Default("node7", {{"LOCAL_RANK", "3"}}), "node7-3");
  EXPECT_EQ(Default("node7", {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}), "node7-2");
  EXPECT_EQ(Default("node7", {{"SLURM_LOCALID", "5"}}), "node7-5");
  EXPECT_EQ(Default("node7", {{"LOCAL_RANK", "1"}, {"SLURM_LOCALID", "5"}}), "node7-1");
  EXPECT_EQ(Default("node7", {{"LOCAL_RANK", "first"}, {"SLURM_LOCALID", "5"}}), "node7-5");
}

TEST(WorkerNameTest, ProcessesAreToldApart) {
  const std::string mine = ProcessMark();
  EXPECT_EQ(ProcessMark(), mine);
  EXPECT_EQ(mine.rfind(absl::StrCat("p", getpid(), "-"), 0), 0U) << mine;
  EXPECT_NE(mine, absl::StrCat("p", getpid(), "-0"));
  EXPECT_TRUE(IsValidId(mine)) << mine;
}

TEST(WorkerNameTest, NamesAreValid) {
  EXPECT_EQ(SanitizeWorkerName("Node_7.Example"), "node-7.example");
  EXPECT_EQ(SanitizeWorkerName("--x--"), "x");
  EXPECT_EQ(SanitizeWorkerName("___"), "worker");
  EXPECT_EQ(SanitizeWorkerName(""), "worker");
  for (const std::string& host :
       {std::string("Ä.node"), std::string(300, 'a'), std::string(62, 'a') + "-", std::string()}) {
    const std::string name = Default(host, {{"LOCAL_RANK", "12"}});
    EXPECT_TRUE(IsValidId(name)) << name;
    EXPECT_EQ(name.substr(name.size() - 3), "-12");
  }
}

}  // namespace
}  // namespace espalier
