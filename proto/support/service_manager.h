#pragma once

// Words to the manager that started this process and waits for them (systemd, Type=notify; the socket named in NOTIFY_SOCKET).
// Without one they go nowhere. Thread-safe.

#include "absl/strings/string_view.h"

namespace espalier {

// The service works; `status` is the line that `systemctl status` shows.
void NotifyReady(absl::string_view status);

// It was told to end and does.
void NotifyStopping();

}  // namespace espalier
