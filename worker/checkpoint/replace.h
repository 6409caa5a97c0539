#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace espalier {

// What the names of everything temporary beside the target `name` begin with.
std::string TemporaryPrefix(absl::string_view name);

// Behind the name of the temporary directory: what it replaces, for as long as that takes.
inline constexpr char kReplacedSuffix[] = ".old";

// Gives the directory `temporary` the name `target`, in one step that no reader sees half done. With `overwrite` an
// existing directory of that name is exchanged and left at `temporary` for removal; where the file system cannot exchange,
// it is first moved to `<temporary>.old`, and a crash between the two steps is mended by MendReplaced.
// OUTPUT_EXISTS without `overwrite`, STORAGE_UNWRITABLE.
absl::Status MoveIntoPlace(const std::string& temporary, const std::string& target, bool overwrite);

// Brings back the directory that a replacement moved away when it was cut short before the new one had its name. Nothing
// to do in every other case.
void MendReplaced(const std::string& target);

}  // namespace espalier
