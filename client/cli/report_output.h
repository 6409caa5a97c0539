#pragma once

#include <cstdint>
#include <string>

#include "client/lib/client.h"

namespace espalier::cli {

// A report for people, in colours where standard output is a terminal (worker/report/report_table.h), or for programs, in
// the founding form (worker/report/report_json.h). Both end with a newline.
// `max_rows`: parameters in the table before "and n more"; 0: all.
std::string ReportText(const SparsityReport& report, int64_t max_rows = 0);
std::string ReportJson(const SparsityReport& report);

}  // namespace espalier::cli
