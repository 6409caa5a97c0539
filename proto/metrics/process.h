#pragma once

#include <string>

namespace espalier {

// What Prometheus' client libraries report of their process, in the text format: process_cpu_seconds_total,
// process_open_fds, process_max_fds, process_resident_memory_bytes, process_virtual_memory_bytes,
// process_start_time_seconds, process_threads. What cannot be read is left out. Thread-safe.
std::string ProcessMetrics();

}  // namespace espalier
