#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/support/errors.h"

namespace espalier {

// CHECKPOINT_INVALID: "file: tensor "t": what"; `tensor` is empty where none is meant.
inline absl::Status CheckpointInvalid(absl::string_view file, absl::string_view tensor, absl::string_view what) {
  // Names come from files: long ones are cut so that what is wrong stays readable.
  const auto brief = [](absl::string_view text) {
    return text.size() <= 300 ? std::string(text) : absl::StrCat(text.substr(0, 300), "...");
  };
  const std::string where = tensor.empty() ? "" : absl::StrCat("tensor \"", brief(tensor), "\": ");
  Metadata metadata = {{"file", brief(file)}, {"what", std::string(what)}};
  if (!tensor.empty()) metadata["tensor"] = brief(tensor);
  return MakeError(v1::ERROR_REASON_CHECKPOINT_INVALID, absl::StrCat(brief(file), ": ", where, what), metadata);
}

// LIMIT_EXCEEDED where `number` says that no further file can be opened, else OK.
inline absl::Status TooManyOpenFiles(absl::string_view file, int number) {
  if (number != EMFILE && number != ENFILE) return absl::OkStatus();
  return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                   absl::StrCat(file, ": cannot be opened: ", std::strerror(number),
                                "; raise `ulimit -Hn`, or save with fewer, larger files (--max-shard-size)"),
                   {{"limit", "open files"}, {"value", std::string(file)}});
}

}  // namespace espalier
