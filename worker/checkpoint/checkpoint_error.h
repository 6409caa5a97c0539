#pragma once

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

}  // namespace espalier
