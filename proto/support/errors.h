#pragma once

// The one table of errors: each reason has a gRPC code, a CLI exit code and metadata keys. Every error that leaves a
// process of ours is made by MakeError.

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "espalier/v1/errors.pb.h"

namespace espalier {

using Metadata = std::map<std::string, std::string>;

// Exit codes of the `espalier` command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInvalid = 3;
inline constexpr int kExitCorrupt = 4;
inline constexpr int kExitUnreachable = 5;
inline constexpr int kExitStorage = 6;
inline constexpr int kExitInterrupted = 130;
inline constexpr int kExitTerminated = 143;

// What is fixed about a reason.
struct ErrorTraits {
  v1::ErrorReason reason;
  absl::StatusCode code;
  int exit_code;
};

// Traits of `reason`; those of INVARIANT for a value this build does not know.
const ErrorTraits& TraitsOf(v1::ErrorReason reason);

// A status with the code of `reason` and an ErrorInfo payload. `message` says what, where and what to do; message and
// metadata are cut so that both together stay under 4 KiB ("and n more" is the caller's part, see JoinLimited).
absl::Status MakeError(v1::ErrorReason reason, absl::string_view message, const Metadata& metadata = {});

// The ErrorInfo of a status; nullopt for one without (OK, or not made by us).
std::optional<v1::ErrorInfo> ErrorInfoOf(const absl::Status& status);

// The reason; ERROR_REASON_UNSPECIFIED without one.
v1::ErrorReason ReasonOf(const absl::Status& status);

// "RECIPE_INVALID"; the CamelCase code name where there is no reason.
std::string ReasonName(const absl::Status& status);

// Metadata value of `key`, empty without.
std::string MetadataOf(const absl::Status& status, absl::string_view key);

// Exit code of the command for a final status.
int ExitCodeOf(const absl::Status& status);

// The same error with `prefix` before its message ("rank 1 (host-1): ...") and further metadata; existing keys win.
absl::Status Annotate(const absl::Status& status, absl::string_view prefix, const Metadata& metadata = {});

// What a program that cannot start says on standard error: "espalier-coordinator: REASON: message". FromErrorLine returns such
// an error to a parent that reads its child's log, without the metadata; nullopt for any other line.
std::string ErrorLine(absl::string_view program, const absl::Status& status);
std::optional<absl::Status> FromErrorLine(absl::string_view program, absl::string_view line);

// To and from the form that travels inside messages. Lossless for statuses made by MakeError.
v1::Status ToProto(const absl::Status& status);
absl::Status FromProto(const v1::Status& status);

// Joins items by `separator` as long as the text stays under `limit` bytes, then says "and n more".
template <typename Container>
std::string JoinLimited(const Container& items, absl::string_view separator, size_t limit = 3000) {
  std::string out;
  size_t taken = 0;
  for (const auto& item : items) {
    if (!out.empty() && out.size() + separator.size() + absl::string_view(item).size() > limit) break;
    absl::StrAppend(&out, out.empty() ? "" : separator, item);
    ++taken;
  }
  if (taken < items.size()) absl::StrAppend(&out, separator, "and ", items.size() - taken, " more");
  return out;
}

}  // namespace espalier
