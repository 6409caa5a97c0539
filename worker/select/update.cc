#include "worker/select/update.h"

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"

namespace espalier {

int64_t Update::NumElements(size_t i) const {
  return espalier::NumElements(inputs[i].parameter->shape());
}

void SelectionHash::Add(uint64_t value) {
  // The finalizer of splitmix64 over a running sum.
  uint64_t x = value_ + value + 0x9e37'79b9'7f4a'7c15;
  x = (x ^ x >> 30) * 0xbf58'476d'1ce4'e5b9;
  x = (x ^ x >> 27) * 0x94d0'49bb'1331'11eb;
  value_ = x ^ x >> 31;
}

absl::Status FinishByCounting(const Update& update, Selection& selection) {
  selection.pruned.clear();
  for (const Bitmask& mask : selection.masks) selection.pruned.push_back(mask.CountPruned());
  ESPALIER_RETURN_IF_ERROR(update.collective.AllReduce(update.tag, absl::MakeSpan(selection.pruned), ReduceOp::kSum));
  SelectionHash hash;
  for (size_t i = 0; i < selection.pruned.size(); ++i) {
    hash.Add(static_cast<uint64_t>(selection.pruned[i]));
    if (update.spec.targets().empty()) continue;
    const int64_t target = update.spec.targets(static_cast<int>(i));
    if (selection.pruned[i] == target) continue;
    return SelectInvariant(
        absl::StrCat(update.Name(i), " loses ", selection.pruned[i], " elements, the update says ", target));
  }
  selection.hash = hash.value();
  return absl::OkStatus();
}

absl::Status SelectInvariant(absl::string_view what) {
  return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("selecting a mask: ", what),
                   {{"what", std::string(what)}, {"where", "select"}});
}

absl::Status Unprunable(absl::string_view parameter, absl::string_view why) {
  return MakeError(v1::ERROR_REASON_TARGET_UNPRUNABLE, absl::StrCat(parameter, " cannot be pruned so: ", why),
                   {{"parameter", std::string(parameter)}, {"why", std::string(why)}});
}

}  // namespace espalier
