#pragma once

// Named places at which a test build can be told to fail. In the product FaultHit is a constant and the code behind it
// is gone; a library that contains fault points is compiled a second time with ESPALIER_FAULTS for the test programs.
//
// ESPALIER_FAULT in the environment of a test program arms them:
//   point[@rank]=action[,point...]   action: kill | stop | term | fail | a word the point understands (rebind, corrupt, off)
// A point that fires writes "point@rank\n" to the file named by ESPALIER_FAULT_LOG, so that a test can prove that it
// did.

#include <string>

#include "absl/strings/string_view.h"

namespace espalier {

namespace fault {
// The action armed for this point, empty for none. kill, stop and term, which are the signals, are sent to this process
// here: kill does not return, stop returns when the process is continued, term while it ends. Thread-safe.
std::string Hit(absl::string_view point, int rank);
}  // namespace fault

#ifdef ESPALIER_FAULTS
inline std::string FaultHit(absl::string_view point, int rank) {
  return fault::Hit(point, rank);
}
#else
constexpr absl::string_view FaultHit(absl::string_view, int) {
  return {};
}
#endif

}  // namespace espalier
