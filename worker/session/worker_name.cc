#include "worker/session/worker_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

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

std::string DefaultWorkerName(absl::string_view host, const EnvironmentFn& environment) {
  int64_t local_rank = 0;
  for (const char* variable : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const std::optional<std::string> value = environment(variable);
    if (value && absl::SimpleAtoi(*value, &local_rank) && local_rank >= 0) break;
    local_rank = 0;
  }
  const std::string suffix = absl::StrCat("-", local_rank);
  // The host gives way, never the rank: names of one host stay different.
  return absl::StrCat(SanitizeWorkerName(SanitizeWorkerName(host).substr(0, kMaxName - suffix.size())), suffix);
}

}  // namespace espalier
