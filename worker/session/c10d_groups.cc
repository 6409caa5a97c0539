#include "worker/session/c10d_groups.h"

#include <dlfcn.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/log.h"
#include "proto/support/status_macros.h"

namespace espalier {
namespace {

// Beside the program, then where an installation puts it; never by a search path.
absl::StatusOr<MakeGroupsFn> LoadModule(const std::string& backend) {
  const std::string name = absl::StrCat("libespalier_", backend, ".so");
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::string why = error ? error.message() : "";
  for (const std::filesystem::path& path : {folder / name, folder / ".." / "lib" / "espalier" / name}) {
    if (!std::filesystem::exists(path, error)) continue;
    // Never closed: LibTorch does not survive it.
    void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const symbol = module == nullptr ? nullptr : dlsym(module, kGroupModuleSymbol);
    // POSIX promises that a function's address survives this.
    if (symbol != nullptr) return reinterpret_cast<MakeGroupsFn>(symbol);
    why = dlerror();
  }
  return MakeError(v1::ERROR_REASON_INVARIANT,
                   absl::StrCat("a group of several ranks needs ", name, " beside ", folder.string(),
                                "/espalier-worker", why.empty() ? "; it is not there" : absl::StrCat(": ", why)),
                   {{"what", name}, {"where", "worker"}});
}

}  // namespace

absl::StatusOr<GroupFactory*> C10dGroups::Loaded() {
  if (module_ == nullptr) {
    ESPALIER_ASSIGN_OR_RETURN(const GroupPlace place, place_());
    ESPALIER_ASSIGN_OR_RETURN(const MakeGroupsFn make, LoadModule(backend_));
    module_.reset(make(place));
    LogInfo("backend_loaded", {{"backend", backend_}, {"bind", place.bind_address}, {"interface", place.interface}});
  }
  return module_.get();
}

absl::StatusOr<std::string> C10dGroups::OpenStore() {
  ESPALIER_ASSIGN_OR_RETURN(GroupFactory * module, Loaded());
  return module->OpenStore();
}

absl::StatusOr<std::shared_ptr<Collective>> C10dGroups::Join(const GroupMembership& membership) {
  ESPALIER_ASSIGN_OR_RETURN(GroupFactory * module, Loaded());
  return module->Join(membership);
}

void C10dGroups::CloseStore() {
  if (module_ != nullptr) module_->CloseStore();
}

}  // namespace espalier
