#pragma once

#include <sys/resource.h>

namespace espalier {

// From now on this process may have as many files open as its hard limit allows. A checkpoint of many files is read and
// written with all of them open; the soft limit, often 1024, is for programs that use select(). Does nothing where it
// cannot. Call at the start of a program.
inline void RaiseOpenFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace espalier
