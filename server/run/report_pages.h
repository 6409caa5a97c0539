#pragma once

#include "espalier/v1/sparsification_service.pb.h"
#include "server/run/records.pb.h"
#include "server/run/stream_sink.h"

namespace espalier {

// Rows in a message of a report.
inline constexpr int kReportPageRows = 1000;

// Writes a whole report: pages of at most kReportPageRows rows, then the summary; then ends the sink with OK. What is
// queued is bounded by the report itself.
void WriteReport(const records::ReportRecord& report, StreamSink<v1::ComputeSparsityReportResponse>& sink);

}  // namespace espalier
