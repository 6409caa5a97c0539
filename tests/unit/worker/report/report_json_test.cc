#include "worker/report/report_json.h"

#include <clocale>
#include <limits>
#include <locale>
#include <nlohmann/json.hpp>

#include "tests/support/status_matchers.h"
#include "worker/report/report.h"

namespace espalier {
namespace {

using testing::HasReason;
using ::testing::HasSubstr;

v1::ParameterSparsity Row(const std::string& name, std::vector<int64_t> shape, int64_t numel, int64_t zeros) {
  v1::ParameterSparsity row;
  row.set_name(name);
  row.set_dtype(v1::DTYPE_BF16);
  for (const int64_t dimension : shape) row.add_shape(dimension);
  row.set_numel(numel);
  row.set_zeros(zeros);
  row.set_planned(-1);
  row.mutable_structure();
  return row;
}

std::vector<v1::ParameterSparsity> SomeRows() {
  std::vector<v1::ParameterSparsity> rows = {Row("a.weight", {2, 4}, 8, 4), Row("b.bias", {0}, 0, 0),
                                             Row("c", {}, 1, 1)};
  rows[0].set_prunable(true);
  rows[0].set_masked(4);
  rows[0].set_mask_version(2);
  rows[0].set_planned(4);
  rows[0].mutable_structure()->set_n(2);
  rows[0].mutable_structure()->set_m(4);
  return rows;
}

v1::Provenance SomeProvenance() {
  v1::Provenance provenance;
  provenance.set_run("runs/a");
  provenance.set_generation(1);
  provenance.set_mode(v1::REPORT_MODE_SHARD_COUNTS);
  provenance.set_world_size(2);
  provenance.set_elapsed_seconds(0.25);
  provenance.set_bytes_moved(96);
  provenance.set_path("/models/x");
  provenance.set_time("2026-01-01T00:00:00Z");
  provenance.set_version("0.1.0");
  return provenance;
}

TEST(ReportJsonTest, HasTheFormOfTheFoundingReport) {
  const auto rows = SomeRows();
  EXPECT_EQ(ReportToJson(rows, Summarize(rows, 2), nullptr),
            R"({"params_summary": {"total": 9, "sparse": 5, "sparsity_percent": 55.55555555555556, "prunable": 8, )"
            R"("prunable_sparse": 4, "prunable_sparsity_percent": 50.0, "quantizable": 8, "quantized": 0, )"
            R"("quantized_percent": 0.0, "masked": 4, "mask_version": 2}, "params_info": {"a.weight": {"numel": 8, )"
            R"("sparsity": 0.5, "quantized": false, "zeros": 4, "masked": 4, "dtype": "BF16", "shape": [2, 4], )"
            R"("prunable": true, "structure": "2:4", "mask_version": 2, "planned": 4}, "b.bias": {"numel": 0, )"
            R"("sparsity": 0.0, "quantized": false, "zeros": 0, "masked": 0, "dtype": "BF16", "shape": [0], )"
            R"("prunable": false, "structure": null, "mask_version": 0, "planned": null}, "c": {"numel": 1, )"
            R"("sparsity": 1.0, "quantized": false, "zeros": 1, "masked": 0, "dtype": "BF16", "shape": [], )"
            R"("prunable": false, "structure": null, "mask_version": 0, "planned": null}}})");
}

TEST(ReportJsonTest, ProvenanceStandsLast) {
  const auto rows = SomeRows();
  const v1::SparsitySummary summary = Summarize(rows, 2);
  const v1::Provenance provenance = SomeProvenance();
  const std::string without = ReportToJson(rows, summary, nullptr);
  EXPECT_EQ(ReportToJson(rows, summary, &provenance),
            without.substr(0, without.size() - 1) +
                R"(, "provenance": {"run": "runs/a", "generation": 1, "mode": "shard-counts", "world_size": 2, )"
                R"("elapsed_seconds": 0.25, "bytes_moved": 96, "path": "/models/x", "time": "2026-01-01T00:00:00Z", )"
                R"("version": "0.1.0"}})");
}

TEST(ReportJsonTest, ReadsBackWhatItWrote) {
  const auto rows = SomeRows();
  const v1::Provenance provenance = SomeProvenance();
  const std::string text = ReportToJson(rows, Summarize(rows, 2), &provenance);
  ASSERT_OK_AND_ASSIGN(const Report report, ReportFromJson(text));
  ASSERT_EQ(report.rows.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(report.rows[i].SerializeAsString(), rows[i].SerializeAsString());
  EXPECT_EQ(report.summary.SerializeAsString(), Summarize(rows, 2).SerializeAsString());
  ASSERT_TRUE(report.provenance.has_value());
  EXPECT_EQ(report.provenance->SerializeAsString(), provenance.SerializeAsString());
  EXPECT_EQ(ReportToJson(report.rows, report.summary, &*report.provenance), text);
}

TEST(ReportJsonTest, EscapesNames) {
  std::vector<v1::ParameterSparsity> rows = {Row("a\"b\\c\n\x01\x7f/\xc3\xa9\xf0\x9f\x8c\xb3", {1}, 1, 0)};
  const std::string text = ReportToJson(rows, Summarize(rows, 0), nullptr);
  EXPECT_THAT(text, HasSubstr(R"("a\"b\\c\n\u0001\u007f/\u00e9\ud83c\udf33": {"numel")"));
  ASSERT_OK_AND_ASSIGN(const Report report, ReportFromJson(text));
  EXPECT_EQ(report.rows[0].name(), rows[0].name());
}

// Names come from files: bytes that are no UTF-8 must not end the program.
TEST(ReportJsonTest, SurvivesNamesThatAreNotUtf8) {
  std::vector<v1::ParameterSparsity> rows = {Row("a", {1}, 1, 0)};
  rows[0].set_name("a\xff");
  EXPECT_TRUE(nlohmann::json::accept(ReportToJson(rows, Summarize(rows, 0), nullptr)));
}

TEST(FloatReprTest, SpellsLikePython) {
  const std::vector<std::pair<double, std::string>> cases = {{0, "0.0"},
                                                             {-0.0, "-0.0"},
                                                             {50, "50.0"},
                                                             {0.1, "0.1"},
                                                             {15.291973225121358, "15.291973225121358"},
                                                             {1.0 / 3, "0.3333333333333333"},
                                                             {0.0001, "0.0001"},
                                                             {0.00001, "1e-05"},
                                                             {1.5e-7, "1.5e-07"},
                                                             {100000, "100000.0"},
                                                             {1e15, "1000000000000000.0"},
                                                             {9007199254740993.0, "9007199254740992.0"},
                                                             {1e16, "1e+16"},
                                                             {1.2345e22, "1.2345e+22"},
                                                             {5e-324, "5e-324"},
                                                             {1.7976931348623157e308, "1.7976931348623157e+308"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(FloatRepr(value), text);
}

TEST(FloatReprTest, IsNeverTheWordNan) {
  EXPECT_EQ(FloatRepr(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(FloatRepr(std::numeric_limits<double>::infinity()), "null");
}

// known-bugs 72
TEST(ReportJsonTest, DoesNotDependOnTheLocale) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const auto rows = SomeRows();
  const std::string before = ReportToJson(rows, Summarize(rows, 2), nullptr);
  const std::locale old = std::locale::global(std::locale(std::locale::classic(), new Comma));
  // Where this one is installed C functions use the comma too.
  setlocale(LC_ALL, "de_DE.UTF-8");
  const std::string after = ReportToJson(rows, Summarize(rows, 2), nullptr);
  const auto read = ReportFromJson(after);
  setlocale(LC_ALL, "C");
  std::locale::global(old);
  EXPECT_EQ(after, before);
  ASSERT_OK(read);
  EXPECT_EQ(read->summary.sparsity_percent(), Summarize(rows, 2).sparsity_percent());
}

// Each text differs from a good one in one place.
TEST(ReportFromJsonTest, RefusesWhatIsNoReportAndSaysWhere) {
  const auto rows = SomeRows();
  const v1::Provenance provenance = SomeProvenance();
  const std::string good = ReportToJson(rows, Summarize(rows, 2), &provenance);
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"total\": 9", "\"total\": \"9\"", "params_summary.total"},
      {"\"total\": 9", "\"total\": 9.5", "params_summary.total"},
      {"\"total\": 9", "\"total\": -9", "params_summary.total"},
      {"\"total\": 9", "\"total\": 9223372036854775808", "params_summary.total"},
      {"\"total\": 9, ", "", "params_summary.total"},
      {"\"sparsity_percent\": 55.55555555555556", "\"sparsity_percent\": null", "params_summary.sparsity_percent"},
      {"\"params_info\"", "\"params\"", "params_info"},
      {"\"params_summary\"", "\"summary\"", "params_summary"},
      {"\"zeros\": 4, ", "", "params_info.a.weight.zeros"},
      {"\"zeros\": 4", "\"zeros\": 5", "params_info.a.weight.sparsity"},
      {"\"dtype\": \"BF16\"", "\"dtype\": \"BF17\"", "params_info.a.weight.dtype"},
      {"\"shape\": [2, 4]", "\"shape\": 8", "params_info.a.weight.shape"},
      {"\"shape\": [2, 4]", "\"shape\": [2, -4]", "params_info.a.weight.shape"},
      {"\"prunable\": true", "\"prunable\": 1", "params_info.a.weight.prunable"},
      {"\"structure\": \"2:4\"", "\"structure\": \"4:2\"", "params_info.a.weight.structure"},
      {"\"structure\": \"2:4\"", "\"structure\": \"dense\"", "params_info.a.weight.structure"},
      {"\"planned\": 4", "\"planned\": -4", "params_info.a.weight.planned"},
      {"\"mode\": \"shard-counts\"", "\"mode\": \"guess\"", "provenance.mode"}};
  for (const auto& [from, to, where] : cases) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos) << from;
    bad.replace(bad.find(from), from.size(), to);
    const auto report = ReportFromJson(bad);
    EXPECT_THAT(report, HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID, HasSubstr(where))) << to;
    EXPECT_EQ(MetadataOf(report.status(), "what"), where);
  }
  for (const char* text : {"", "[]", "null", "{", "{\"params_summary\": 3, \"params_info\": {}}"}) {
    EXPECT_THAT(ReportFromJson(text), HasReason(v1::ERROR_REASON_CHECKPOINT_INVALID)) << text;
  }
}

TEST(ReportFromJsonTest, IgnoresKeysOfOthers) {
  const auto rows = SomeRows();
  std::string text = ReportToJson(rows, Summarize(rows, 2), nullptr);
  text.replace(0, 1, "{\"more\": [1, 2], ");
  EXPECT_OK(ReportFromJson(text));
}

}  // namespace
}  // namespace espalier
