#pragma once

// What the methods of Select share. All functions are entered by all ranks with the same spec, after every rank's
// inputs were found to be in order.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/collective/collective.h"
#include "worker/select/magnitude.h"
#include "worker/select/select.h"

namespace espalier {

struct Update {
  const v1::UpdateSpec& spec;
  absl::Span<const SelectInput> inputs;
  Collective& collective;
  CollectiveTag tag;

  // The mask whose elements come first in the order; nullptr where none do.
  const Bitmask* First(size_t i) const { return spec.monotone() ? inputs[i].current : nullptr; }
  Magnitudes Values(size_t i) const { return {inputs[i].parameter->dtype(), inputs[i].values}; }
  const std::string& Name(size_t i) const { return inputs[i].parameter->name(); }
  int64_t NumElements(size_t i) const;
};

// `masked`: elements of each full parameter that come first, on all ranks.
absl::StatusOr<Selection> SelectEach(const Update& update, absl::Span<const int64_t> masked);
absl::StatusOr<Selection> SelectGlobally(const Update& update, absl::Span<const int64_t> masked);

// The N:M mask of this rank's range of one parameter. `cut`: a group lies on more than one rank, so all enter a
// collective.
absl::StatusOr<Bitmask> MaskNOfM(const Update& update, size_t i, bool cut);
// `cut`: not 0 where a group lies on more than one rank.
absl::StatusOr<Selection> SelectNOfM(const Update& update, absl::Span<const int64_t> cut);

absl::StatusOr<Selection> SelectConstant(const Update& update);

// Folds what all ranks must have computed alike.
class SelectionHash {
 public:
  void Add(uint64_t value);
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf2'9ce4'8422'2325;
};

// Sums the pruned elements of the masks over all ranks into `selection`, with the hash of them, and compares them with
// the targets where the spec has some: INVARIANT, on all ranks.
absl::Status FinishByCounting(const Update& update, Selection& selection);

absl::Status SelectInvariant(absl::string_view what);
absl::Status Unprunable(absl::string_view parameter, absl::string_view why);

}  // namespace espalier
