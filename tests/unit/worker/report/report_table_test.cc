#include "worker/report/report_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/report/report.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::ParameterSparsity Row(const std::string& name, std::vector<int64_t> shape, int64_t numel, int64_t zeros,
                          bool prunable) {
  v1::ParameterSparsity row;
  row.set_name(name);
  row.set_dtype(v1::DTYPE_F32);
  for (const int64_t dimension : shape) row.add_shape(dimension);
  row.set_numel(numel);
  row.set_zeros(zeros);
  row.set_prunable(prunable);
  row.set_planned(-1);
  return row;
}

std::vector<v1::ParameterSparsity> SomeRows() {
  std::vector<v1::ParameterSparsity> rows = {Row("a.weight", {2, 4}, 8, 4, true), Row("bb.weight", {4, 4}, 16, 3, true),
                                             Row("c.weight", {0, 4}, 0, 0, true), Row("norm.weight", {4}, 4, 1, false),
                                             Row("scale", {}, 1, 0, false)};
  rows[0].set_masked(4);
  rows[0].set_planned(4);
  rows[1].set_masked(3);
  rows[1].set_planned(8);
  return rows;
}

TEST(ReportTableTest, AlignsItsColumns) {
  const auto rows = SomeRows();
  v1::Provenance provenance;
  provenance.set_mode(v1::REPORT_MODE_GATHER);
  provenance.set_world_size(2);
  provenance.set_elapsed_seconds(0.0125);
  provenance.set_bytes_moved(96);
  EXPECT_EQ(ReportTable(rows, Summarize(rows, 1), &provenance),
            "parameter         shape  dtype  zeros  of  sparsity  masked  planned\n"
            "a.weight          2x4    F32        4   8   50.00 %       4       ok\n"
            "bb.weight         4x4    F32        3  16   18.75 %       3        8\n"
            "c.weight          0x4    F32        0   0         -       0\n"
            "(2 not prunable)                    1   5   20.00 %       0\n"
            "\n"
            "29 total params, 8 of them zero: 27.586206896551722 % sparsity\n"
            "24 prunable params, 7 of them zero: 29.166666666666668 % sparsity\n"
            "7 masked, mask version 1\n"
            "gather, world size 2, 0.013 s, 96 bytes moved\n");
}

TEST(ReportTableTest, CutsLongReportsAndSumsTheRest) {
  const auto rows = SomeRows();
  const std::string table = ReportTable(rows, Summarize(rows, 1), nullptr, {.max_rows = 1});
  EXPECT_THAT(table, HasSubstr("a.weight"));
  EXPECT_THAT(table, Not(HasSubstr("bb.weight")));
  EXPECT_THAT(table, HasSubstr("(and 2 more)                        3  16   18.75 %       3\n"));
}

// known-bugs 20
TEST(ReportTableTest, EmptyThingsAreNoNumbersToDivide) {
  for (const auto& rows : {std::vector<v1::ParameterSparsity>{}, {Row("a", {0}, 0, 0, true)}}) {
    const std::string table = ReportTable(rows, Summarize(rows, 0), nullptr);
    EXPECT_THAT(table, Not(HasSubstr("nan")));
    EXPECT_THAT(table, Not(HasSubstr("inf")));
    EXPECT_THAT(table, HasSubstr("0 prunable params, 0 of them zero: 0.0 % sparsity"));
  }
}

TEST(ReportTableTest, ColoursDoNotMoveTheColumns) {
  const auto rows = SomeRows();
  const std::string plain = ReportTable(rows, Summarize(rows, 1), nullptr);
  std::string colored = ReportTable(rows, Summarize(rows, 1), nullptr, {.color = true});
  EXPECT_THAT(colored, HasSubstr("\x1b[32mok\x1b[0m"));
  EXPECT_THAT(colored, HasSubstr("\x1b[31m8\x1b[0m"));
  for (size_t at = colored.find('\x1b'); at != std::string::npos; at = colored.find('\x1b')) {
    colored.erase(at, colored.find('m', at) - at + 1);
  }
  EXPECT_EQ(colored, plain);
}

TEST(ReportTableTest, NamesCannotDriveTheTerminal) {
  const std::vector<v1::ParameterSparsity> rows = {Row("a\x1b[2J\nb\xc3\xa9", {1, 1}, 1, 0, true)};
  const std::string table = ReportTable(rows, Summarize(rows, 0), nullptr);
  EXPECT_THAT(table, HasSubstr("a\\x1b[2J\\x0ab\xc3\xa9  1x1"));
}

}  // namespace
}  // namespace espalier
