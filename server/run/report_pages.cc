#include "server/run/report_pages.h"

#include <algorithm>

namespace espalier {

void WriteReport(const records::ReportRecord& report, StreamSink<v1::ComputeSparsityReportResponse>& sink) {
  for (int begin = 0; begin < report.parameters_size(); begin += kReportPageRows) {
    v1::ComputeSparsityReportResponse response;
    const int end = std::min(begin + kReportPageRows, report.parameters_size());
    for (int i = begin; i < end; ++i) *response.mutable_page()->add_parameters() = report.parameters(i);
    sink.Write(std::move(response));
  }
  v1::ComputeSparsityReportResponse last;
  *last.mutable_summary()->mutable_sparsity() = report.summary();
  *last.mutable_summary()->mutable_provenance() = report.provenance();
  sink.Write(std::move(last));
  sink.Finish(absl::OkStatus());
}

}  // namespace espalier
