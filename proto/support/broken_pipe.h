#pragma once

#include <signal.h>

namespace espalier {

// From now on, in this process and in what it executes, a write to a socket or pipe whose reader has gone fails with EPIPE.
// By default it ends the process, without a word. Call at the start of a program that is to outlive its peers or its log's
// reader; libraries that write without MSG_NOSIGNAL, Gloo among them, leave no other way.
inline void IgnoreBrokenPipes() {
  signal(SIGPIPE, SIG_IGN);
}

}  // namespace espalier
