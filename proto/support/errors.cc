#include "proto/support/errors.h"

#include <array>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace espalier {
namespace {

constexpr char kTypeUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kDomain[] = "espalier";
constexpr absl::string_view kPrefix = "ERROR_REASON_";

// gRPC drops trailers past 8 KiB; half of that leaves room for base64 and other metadata.
constexpr size_t kMaxMessageBytes = 3500;
constexpr size_t kMaxMetadataBytes = 500;

using Code = absl::StatusCode;
constexpr std::array kTable = {
    ErrorTraits{v1::ERROR_REASON_RECIPE_INVALID, Code::kInvalidArgument, kExitInvalid},
    ErrorTraits{v1::ERROR_REASON_TARGET_UNMATCHED, Code::kInvalidArgument, kExitInvalid},
    ErrorTraits{v1::ERROR_REASON_MODIFIERS_OVERLAP, Code::kInvalidArgument, kExitInvalid},
    ErrorTraits{v1::ERROR_REASON_TARGET_UNPRUNABLE, Code::kInvalidArgument, kExitInvalid},
    ErrorTraits{v1::ERROR_REASON_REQUEST_ID_REUSED, Code::kAlreadyExists, kExitUsage},
    ErrorTraits{v1::ERROR_REASON_HISTORY_COMPACTED, Code::kOutOfRange, kExitFailed},
    ErrorTraits{v1::ERROR_REASON_CHECKPOINT_INVALID, Code::kFailedPrecondition, kExitInvalid},
    ErrorTraits{v1::ERROR_REASON_PATH_NOT_ALLOWED, Code::kPermissionDenied, kExitInvalid},
    ErrorTraits{v1::ERROR_REASON_RUN_NOT_FOUND, Code::kNotFound, kExitUsage},
    ErrorTraits{v1::ERROR_REASON_WORKER_NOT_FOUND, Code::kNotFound, kExitUsage},
    ErrorTraits{v1::ERROR_REASON_PARAMETER_NOT_FOUND, Code::kNotFound, kExitUsage},
    ErrorTraits{v1::ERROR_REASON_OPERATION_NOT_FOUND, Code::kNotFound, kExitUsage},
    ErrorTraits{v1::ERROR_REASON_ILLEGAL_TRANSITION, Code::kFailedPrecondition, kExitUsage},
    ErrorTraits{v1::ERROR_REASON_WORKERS_MISSING, Code::kFailedPrecondition, kExitUnreachable},
    ErrorTraits{v1::ERROR_REASON_GENERATION_STALE, Code::kAborted, kExitFailed},
    ErrorTraits{v1::ERROR_REASON_WORKER_LOST, Code::kAborted, kExitFailed},
    ErrorTraits{v1::ERROR_REASON_COLLECTIVE_TIMEOUT, Code::kDeadlineExceeded, kExitFailed},
    ErrorTraits{v1::ERROR_REASON_MASK_NOT_EFFECTIVE, Code::kDataLoss, kExitCorrupt},
    ErrorTraits{v1::ERROR_REASON_STATE_DIVERGED, Code::kDataLoss, kExitCorrupt},
    ErrorTraits{v1::ERROR_REASON_WORKER_KIND, Code::kFailedPrecondition, kExitUsage},
    ErrorTraits{v1::ERROR_REASON_PLACEMENT_UNSUPPORTED, Code::kFailedPrecondition, kExitUsage},
    ErrorTraits{v1::ERROR_REASON_OUTPUT_EXISTS, Code::kFailedPrecondition, kExitUsage},
    // A full disk may be RESOURCE_EXHAUSTED to some, but who retries must first mend the storage in every case.
    ErrorTraits{v1::ERROR_REASON_STORAGE_UNWRITABLE, Code::kFailedPrecondition, kExitStorage},
    ErrorTraits{v1::ERROR_REASON_LIMIT_EXCEEDED, Code::kResourceExhausted, kExitStorage},
    ErrorTraits{v1::ERROR_REASON_DRAINING, Code::kUnavailable, kExitUnreachable},
    ErrorTraits{v1::ERROR_REASON_INVARIANT, Code::kInternal, kExitFailed},
    ErrorTraits{v1::ERROR_REASON_REQUEST_INVALID, Code::kInvalidArgument, kExitUsage},
    ErrorTraits{v1::ERROR_REASON_CANCELLED, Code::kCancelled, kExitFailed},
    ErrorTraits{v1::ERROR_REASON_UNREACHABLE, Code::kUnavailable, kExitUnreachable},
    ErrorTraits{v1::ERROR_REASON_JOURNAL_CORRUPT, Code::kDataLoss, kExitCorrupt},
    ErrorTraits{v1::ERROR_REASON_CANNOT_BIND, Code::kFailedPrecondition, kExitUnreachable},
    ErrorTraits{v1::ERROR_REASON_DEADLINE, Code::kDeadlineExceeded, kExitUnreachable},
};
static_assert(kTable.size() == v1::ErrorReason_ARRAYSIZE - 1, "every reason has a row");

// Bytes of the UTF-8 sequence that `text` begins with; 0 where it begins with none.
size_t SequenceLength(absl::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = at(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xC2 ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what is past the last code point.
  const unsigned second = at(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return length;
}

// At most `limit` bytes of UTF-8: errors quote files and paths, which may hold anything, and a message that is not UTF-8
// does not travel.
std::string CleanText(absl::string_view text, size_t limit) {
  std::string out;
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    const std::string bad =
        length > 0 ? "" : absl::StrCat("\\x", absl::Hex(static_cast<unsigned char>(text[0]), absl::kZeroPad2));
    const absl::string_view piece = length > 0 ? text.substr(0, length) : absl::string_view(bad);
    if (out.size() + piece.size() > limit) break;
    out.append(piece.data(), piece.size());
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

void SetInfo(absl::Status& status, const v1::ErrorInfo& info) {
  status.SetPayload(kTypeUrl, absl::Cord(info.SerializeAsString()));
}

}  // namespace

const ErrorTraits& TraitsOf(v1::ErrorReason reason) {
  for (const ErrorTraits& row : kTable) {
    if (row.reason == reason) return row;
  }
  return TraitsOf(v1::ERROR_REASON_INVARIANT);
}

absl::Status MakeError(v1::ErrorReason reason, absl::string_view message, const Metadata& metadata) {
  absl::Status status(TraitsOf(reason).code, CleanText(message, kMaxMessageBytes));
  v1::ErrorInfo info;
  info.set_reason(std::string(absl::StripPrefix(v1::ErrorReason_Name(reason), kPrefix)));
  info.set_domain(kDomain);
  size_t used = 0;
  for (const auto& [key, value] : metadata) {
    const size_t room = kMaxMetadataBytes - std::min(kMaxMetadataBytes, used + key.size());
    if (room == 0) break;
    std::string& kept = (*info.mutable_metadata())[key];
    kept = CleanText(value, room);
    used += key.size() + kept.size();
  }
  SetInfo(status, info);
  return status;
}

std::optional<v1::ErrorInfo> ErrorInfoOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kTypeUrl);
  if (!payload) return std::nullopt;
  v1::ErrorInfo info;
  if (!info.ParseFromString(std::string(*payload))) return std::nullopt;
  return info;
}

v1::ErrorReason ReasonOf(const absl::Status& status) {
  const auto info = ErrorInfoOf(status);
  v1::ErrorReason reason = v1::ERROR_REASON_UNSPECIFIED;
  if (info) v1::ErrorReason_Parse(absl::StrCat(kPrefix, info->reason()), &reason);
  return reason;
}

std::string ReasonName(const absl::Status& status) {
  const auto info = ErrorInfoOf(status);
  return info ? info->reason() : absl::StatusCodeToString(status.code());
}

std::string MetadataOf(const absl::Status& status, absl::string_view key) {
  const auto info = ErrorInfoOf(status);
  if (!info) return "";
  const auto it = info->metadata().find(std::string(key));
  return it == info->metadata().end() ? "" : it->second;
}

std::string ErrorLine(absl::string_view program, const absl::Status& status) {
  return absl::StrCat(program, ": ", ReasonName(status), ": ", status.message());
}

std::optional<absl::Status> FromErrorLine(absl::string_view program, absl::string_view line) {
  if (!absl::ConsumePrefix(&line, program) || !absl::ConsumePrefix(&line, ": ")) return std::nullopt;
  const size_t colon = line.find(": ");
  v1::ErrorReason reason = v1::ERROR_REASON_UNSPECIFIED;
  if (colon == absl::string_view::npos ||
      !v1::ErrorReason_Parse(absl::StrCat(kPrefix, line.substr(0, colon)), &reason)) {
    return std::nullopt;
  }
  return MakeError(reason, line.substr(colon + 2));
}

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  if (const v1::ErrorReason reason = ReasonOf(status); reason != v1::ERROR_REASON_UNSPECIFIED) {
    return TraitsOf(reason).exit_code;
  }
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kUnimplemented:
      return kExitUsage;
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return kExitUnreachable;
    case Code::kResourceExhausted:
      return kExitStorage;
    case Code::kDataLoss:
      return kExitCorrupt;
    default:
      return kExitFailed;
  }
}

absl::Status Annotate(const absl::Status& status, absl::string_view prefix, const Metadata& metadata) {
  if (status.ok()) return status;
  absl::Status out(status.code(), CleanText(absl::StrCat(prefix, status.message()), kMaxMessageBytes));
  v1::ErrorInfo info = ErrorInfoOf(status).value_or(v1::ErrorInfo());
  if (!info.reason().empty()) {
    for (const auto& [key, value] : metadata)
      info.mutable_metadata()->insert({key, CleanText(value, kMaxMetadataBytes)});
    SetInfo(out, info);
  }
  return out;
}

v1::Status ToProto(const absl::Status& status) {
  v1::Status out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(std::string(status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    v1::ErrorDetail* detail = out.add_details();
    detail->set_type_url(std::string(url));
    detail->set_value(std::string(payload));
  });
  return out;
}

absl::Status FromProto(const v1::Status& status) {
  absl::Status out(static_cast<absl::StatusCode>(status.code()), status.message());
  if (out.ok()) return out;
  for (const v1::ErrorDetail& detail : status.details()) out.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  return out;
}

}  // namespace espalier
