#pragma once

#include <string>

#include "client/lib/client.h"

namespace espalier::cli {

// A report for people, in colours where standard output is a terminal (worker/report/report_table.h), or for programs, in
// the founding form (worker/report/report_json.h). Both end with a newline.
std::string ReportText(const SparsityReport& report);
std::string ReportJson(const SparsityReport& report);

}  // namespace espalier::cli
