#include "worker/session/worker_name.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace espalier {
namespace {

constexpr size_t kMaxName = 63;

bool IsAlnum(char c) {
  return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c));
}

}  // namespace

std::string SanitizeWorkerName(absl::string_view name) {
  std::string out = absl::AsciiStrToLower(name);
  for (char& c : out) {
    if (!IsAlnum(c) && c != '.' && c != '-') c = '-';
  }
  while (!out.empty() && !IsAlnum(out.front())) out.erase(out.begin());
  if (out.size() > kMaxName) out.resize(kMaxName);
  while (!out.empty() && !IsAlnum(out.back())) out.pop_back();
  return out.empty() ? "worker" : out;
}

std::optional<int64_t> LocalRank(const EnvironmentFn& environment) {
  for (const char* variable : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const std::optional<std::string> value = environment(variable);
    int64_t local_rank = 0;
    if (value && absl::SimpleAtoi(*value, &local_rank) && local_rank >= 0) return local_rank;
  }
  return std::nullopt;
}

std::string DefaultWorkerName(absl::string_view host, const EnvironmentFn& environment, absl::string_view process) {
  const std::optional<int64_t> local_rank = LocalRank(environment);
  const std::string suffix = local_rank ? absl::StrCat("-", *local_rank) : absl::StrCat("-", process);
  // The host gives way, never what follows it: names of one host stay different.
  return absl::StrCat(SanitizeWorkerName(SanitizeWorkerName(host).substr(0, kMaxName - suffix.size())), suffix);
}

std::string ProcessMark() {
  // Clock ticks from the boot to the start: containers number their processes alike. Field 22; the second one, the name
  // of the program, may hold anything up to its last parenthesis.
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(stat).substr(stat.rfind(')') + 1), ' ', absl::SkipEmpty());
  uint64_t started = 0;
  constexpr size_t kStartTime = 22 - 3;
  if (fields.size() > kStartTime && !absl::SimpleAtoi(fields[kStartTime], &started)) started = 0;
  return absl::StrCat("p", getpid(), "-", absl::Hex(started));
}

}  // namespace espalier
