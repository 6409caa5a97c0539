#include "client/cli/report_output.h"

#include <unistd.h>

#include "client/cli/terminal.h"
#include "worker/report/report_json.h"
#include "worker/report/report_table.h"

namespace espalier::cli {

std::string ReportText(const SparsityReport& report, int64_t max_rows) {
  ReportTableOptions options;
  options.max_rows = max_rows;
  options.color = DetectTerminal(STDOUT_FILENO).color;
  return ReportTable(report.parameters, report.summary, &report.provenance, options);
}

std::string ReportJson(const SparsityReport& report) {
  return ReportToJson(report.parameters, report.summary, &report.provenance) + "\n";
}

}  // namespace espalier::cli
