#include "worker/device/open_device.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

#ifdef ESPALIER_CUDA
#include "worker/device/cuda/cuda_accelerator.h"
#endif

namespace espalier {
namespace {

absl::Status Refused(absl::string_view name, absl::string_view why) {
  return MakeError(v1::ERROR_REASON_REQUEST_INVALID, absl::StrCat("--device '", name, "': ", why),
                   {{"field", "device"}});
}

#ifdef ESPALIER_CUDA
absl::StatusOr<std::unique_ptr<Accelerator>> Open(absl::string_view, std::optional<int> number, int64_t local_rank) {
  if (!number) {
    ESPALIER_ASSIGN_OR_RETURN(const int count, CountCudaDevices());
    number = static_cast<int>(local_rank % count);
  }
  return OpenCuda(*number);
}
#else
absl::StatusOr<std::unique_ptr<Accelerator>> Open(absl::string_view name, std::optional<int>, int64_t) {
  return Refused(name, "this build works on cpu alone; the preset cuda makes one for NVIDIA GPUs");
}
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<Accelerator>> OpenDevice(absl::string_view name, std::optional<int64_t> local_rank) {
  if (name == "cpu") return nullptr;
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "cuda")) return Refused(name, "only cpu, cuda and cuda:N are known");
  std::optional<int> number;
  if (!rest.empty()) {
    int parsed = 0;
    if (!absl::ConsumePrefix(&rest, ":") || !absl::SimpleAtoi(rest, &parsed) || parsed < 0) {
      return Refused(name, "a GPU is named cuda:N, N counted from 0");
    }
    number = parsed;
  }
  return Open(name, number, local_rank.value_or(0));
}

}  // namespace espalier
