#include "proto/support/status_macros.h"
#include "worker/mask/kernels.h"
#include "worker/select/update.h"

namespace espalier {

absl::StatusOr<Selection> SelectConstant(const Update& update) {
  Selection selection;
  for (const SelectInput& input : update.inputs) {
    Bitmask mask = MaskOfZeros(input.parameter->dtype(), input.values);
    if (input.current != nullptr) {
      for (size_t w = 0; w < mask.words().size(); ++w) mask.words()[w] &= input.current->words()[w];
    }
    selection.masks.push_back(std::move(mask));
  }
  ESPALIER_RETURN_IF_ERROR(FinishByCounting(update, selection));
  return selection;
}

}  // namespace espalier
