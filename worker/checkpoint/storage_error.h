#pragma once

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/support/errors.h"

namespace espalier {

// STORAGE_UNWRITABLE: "path: doing: reason". `number` is an errno, 0 where there is none.
inline absl::Status StorageUnwritable(absl::string_view path, absl::string_view doing, int number) {
  return MakeError(v1::ERROR_REASON_STORAGE_UNWRITABLE,
                   absl::StrCat(path, ": ", doing, number == 0 ? "" : ": ", number == 0 ? "" : std::strerror(number)),
                   {{"path", std::string(path)}, {"errno", absl::StrCat(number)}});
}

}  // namespace espalier
