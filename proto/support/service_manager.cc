#include "proto/support/service_manager.h"

#include <systemd/sd-daemon.h>

#include "absl/strings/str_cat.h"

namespace espalier {

void NotifyReady(absl::string_view status) {
  sd_notify(/*unset_environment=*/0, absl::StrCat("READY=1\nSTATUS=", status).c_str());
}

void NotifyStopping() {
  sd_notify(/*unset_environment=*/0, "STOPPING=1");
}

}  // namespace espalier
