#include "proto/metrics/process.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace espalier {
namespace {

void Add(std::string& out, const char* name, const char* type, const char* help, double value) {
  absl::StrAppendFormat(&out, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name, value);
}

std::string Read(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// proc(5): fields of /proc/self/stat after the name, which may hold anything and ends with the last parenthesis.
std::vector<std::string> StatFields() {
  const std::string stat = Read("/proc/self/stat");
  const size_t end = stat.rfind(") ");
  if (end == std::string::npos) return {};
  return absl::StrSplit(stat.substr(end + 2), ' ');
}

double BootTime() {
  for (const absl::string_view line : absl::StrSplit(Read("/proc/stat"), '\n')) {
    double seconds = 0;
    if (line.substr(0, 6) == "btime " && absl::SimpleAtod(line.substr(6), &seconds)) return seconds;
  }
  return 0;
}

}  // namespace

std::string ProcessMetrics() {
  std::string out;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    Add(out, "process_cpu_seconds_total", "counter", "CPU time, user and system.",
        Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  }
  std::error_code error;
  int64_t open = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++open;
  }
  if (!error) Add(out, "process_open_fds", "gauge", "Open file descriptors.", static_cast<double>(open));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    Add(out, "process_max_fds", "gauge", "Most file descriptors that may be open.",
        static_cast<double>(limit.rlim_cur));
  }
  // Counted from the state, which is field 3: threads 20, start 22, virtual size 23, resident pages 24.
  const std::vector<std::string> fields = StatFields();
  const auto field = [&](size_t number) {
    double value = 0;
    const size_t i = number - 3;
    return i < fields.size() && absl::SimpleAtod(fields[i], &value) ? value : 0;
  };
  if (fields.empty()) return out;
  Add(out, "process_resident_memory_bytes", "gauge", "Resident memory.",
      field(24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  Add(out, "process_virtual_memory_bytes", "gauge", "Virtual memory.", field(23));
  Add(out, "process_threads", "gauge", "Threads.", field(20));
  static const double boot = BootTime();
  Add(out, "process_start_time_seconds", "gauge", "Start of the process, since 1970.",
      boot + field(22) / static_cast<double>(sysconf(_SC_CLK_TCK)));
  return out;
}

}  // namespace espalier
