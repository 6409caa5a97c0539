#include "proto/support/service_options.h"

#include <stdlib.h>

#include "proto/support/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_dir.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using testing::HasReason;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

// A service with three options of its own.
class ServiceOptionsTest : public ::testing::Test {
 protected:
  ServiceOptionsTest() {
    app_.add_option("--listen", listen_)->capture_default_str();
    app_.add_option("--state-dir", state_dir_);
    app_.add_option("--model-root", roots_);
    AddServiceOptions(app_, service_);
  }
  ~ServiceOptionsTest() override {
    for (const char* name : {"ESPALIER_LISTEN", "ESPALIER_STATE_DIR", "ESPALIER_CONFIG"}) unsetenv(name);
  }
  absl::Status Read(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());
    app_.parse(arguments);
    return ReadConfigFile(app_, service_);
  }
  std::string Config(const std::string& text) {
    WriteFile(dir_ / "espalier.toml", text);
    return dir_ / "espalier.toml";
  }

  TempDir dir_;
  CLI::App app_;
  ServiceOptions service_;
  std::string listen_ = "default", state_dir_;
  std::vector<std::string> roots_;
};

TEST_F(ServiceOptionsTest, TheCommandLineThenTheEnvironmentThenTheFile) {
  const std::string file = Config(
      "# of the fleet\nlisten = \"file\"\nstate-dir = \"/file\"\nlog-format = \"json\"\n"
      "model-root = [\"/a\", \"/b\"]\n");
  setenv("ESPALIER_LISTEN", "environment", 1);
  setenv("ESPALIER_STATE_DIR", "/environment", 1);
  setenv("ESPALIER_CONFIG", file.c_str(), 1);
  EXPECT_OK(Read({"--listen", "line"}));
  EXPECT_EQ(listen_, "line");
  EXPECT_EQ(state_dir_, "/environment");
  EXPECT_EQ(service_.log_format, "json");
  EXPECT_EQ(service_.log_level, "info");
  EXPECT_THAT(roots_, ElementsAre("/a", "/b"));
}

TEST_F(ServiceOptionsTest, WhatIsNoOptionIsNamed) {
  for (const char* text : {"listenn = \"x\"\n", "[coordinator]\nlisten = \"x\"\n", "config = \"again\"\n"}) {
    const absl::Status status = Read({"--config", Config(text)});
    EXPECT_THAT(status, HasReason(v1::ERROR_REASON_REQUEST_INVALID, HasSubstr("is no option"))) << text;
    EXPECT_EQ(MetadataOf(status, "field"), "config");
  }
  EXPECT_EQ(listen_, "default");
}

TEST_F(ServiceOptionsTest, AFileThatIsNotThere) {
  EXPECT_THAT(Read({"--config", dir_ / "none"}),
              HasReason(v1::ERROR_REASON_REQUEST_INVALID, HasSubstr("cannot be read")));
}

TEST_F(ServiceOptionsTest, AValueThatIsNoChoice) {
  EXPECT_THAT(Read({"--config", Config("log-format = \"xml\"\n")}), HasReason(v1::ERROR_REASON_REQUEST_INVALID));
}

}  // namespace
}  // namespace espalier
