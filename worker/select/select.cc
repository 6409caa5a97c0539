#include "worker/select/select.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/mask/kernels.h"
#include "worker/select/groups.h"
#include "worker/select/update.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

bool IsNOfM(const v1::UpdateSpec& spec) {
  return spec.method() == v1::SELECTION_METHOD_N_OF_M;
}

bool NeedsTargets(const v1::UpdateSpec& spec) {
  return spec.method() == v1::SELECTION_METHOD_MAGNITUDE || spec.method() == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE;
}

absl::Status CheckInput(const v1::UpdateSpec& spec, const SelectInput& input, absl::string_view name) {
  if (input.parameter == nullptr || input.parameter->name() != name) {
    return SelectInvariant(absl::StrCat("the input for ", name, " is another parameter's"));
  }
  const v1::Parameter& parameter = *input.parameter;
  if (!IsPrunableDtype(parameter.dtype())) {
    return Unprunable(name, absl::StrCat("its dtype is ", DtypeName(parameter.dtype()),
                                         "; F64, F32, F16 and BF16 can be pruned, ignore it"));
  }
  const ShardRange& range = input.range;
  if (range.begin < 0 || range.end < range.begin || range.end > NumElements(parameter.shape()) ||
      static_cast<int64_t>(input.values.size()) != range.size() * DtypeSize(parameter.dtype())) {
    return SelectInvariant(absl::StrCat(name, ": ", input.values.size(), " bytes do not fit elements [", range.begin,
                                        ", ", range.end, ")"));
  }
  if (input.current != nullptr && input.current->size() != range.size()) {
    return SelectInvariant(
        absl::StrCat(name, ": the present mask has ", input.current->size(), " elements, the shard ", range.size()));
  }
  if (IsNOfM(spec)) return GroupLayoutOf(parameter, spec.structure()).status();
  return absl::OkStatus();
}

absl::Status CheckInputs(const v1::UpdateSpec& spec, absl::Span<const SelectInput> inputs) {
  if (static_cast<int>(inputs.size()) != spec.parameters_size()) {
    return SelectInvariant(absl::StrCat(inputs.size(), " inputs for ", spec.parameters_size(), " parameters"));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    ESPALIER_RETURN_IF_ERROR(CheckInput(spec, inputs[i], spec.parameters(static_cast<int>(i))));
  }
  return absl::OkStatus();
}

absl::Status CheckSpec(const v1::UpdateSpec& spec) {
  const bool global = spec.method() == v1::SELECTION_METHOD_GLOBAL_MAGNITUDE;
  const int want = global ? 1 : spec.parameters_size();
  if (spec.targets_size() != want && (NeedsTargets(spec) || spec.targets_size() != 0)) {
    return SelectInvariant(absl::StrCat(spec.targets_size(), " targets, must be ", want));
  }
  // Ties of a global selection go by name, and ranks walk the parameters in this order.
  if (std::adjacent_find(spec.parameters().begin(), spec.parameters().end(), std::greater_equal<>()) !=
      spec.parameters().end()) {
    return SelectInvariant("the parameters are not sorted by name");
  }
  return absl::OkStatus();
}

// OK when all ranks are. A rank that is not keeps its own error; `slots` are summed over the ranks on the way.
absl::Status Agree(const absl::Status& mine, std::vector<int64_t>& slots, Collective& collective,
                   const CollectiveTag& tag) {
  const auto world = static_cast<size_t>(collective.world_size());
  std::vector<int64_t> sums(world);
  sums[static_cast<size_t>(collective.rank())] = mine.ok() ? 0 : 1;
  sums.insert(sums.end(), slots.begin(), slots.end());
  ESPALIER_RETURN_IF_ERROR(collective.AllReduce(tag, absl::MakeSpan(sums), ReduceOp::kSum));
  ESPALIER_RETURN_IF_ERROR(mine);
  for (size_t rank = 0; rank < world; ++rank) {
    if (sums[rank] != 0)
      return SelectInvariant(absl::StrCat("rank ", rank, " could not start; its own error says why"));
  }
  slots.assign(sums.begin() + static_cast<ptrdiff_t>(world), sums.end());
  return absl::OkStatus();
}

// What ranks must know of each other's shards before they start, a number for each parameter: how many elements come
// first, or whether a group is cut.
std::vector<int64_t> LocalSlots(const Update& update) {
  std::vector<int64_t> slots(update.inputs.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (IsNOfM(update.spec)) {
      const auto layout = GroupLayoutOf(*update.inputs[i].parameter, update.spec.structure());
      slots[i] = layout.ok() && !layout->Aligned(update.inputs[i].range) ? 1 : 0;
    } else if (const Bitmask* first = update.First(i); first != nullptr) {
      slots[i] = first->CountPruned();
    }
  }
  return slots;
}

// Entered by all ranks: are the inputs of each in order? Answers the slots, summed over the ranks.
absl::StatusOr<std::vector<int64_t>> Meet(const Update& update) {
  const absl::Status mine = CheckInputs(update.spec, update.inputs);
  std::vector<int64_t> slots;
  if (IsNOfM(update.spec) || update.spec.monotone()) {
    slots = mine.ok() ? LocalSlots(update) : std::vector<int64_t>(static_cast<size_t>(update.spec.parameters_size()));
  }
  ESPALIER_RETURN_IF_ERROR(Agree(mine, slots, update.collective, update.tag));
  slots.resize(update.inputs.size());
  return slots;
}

int64_t CountZeroOrMasked(const SelectInput& input) {
  if (input.current == nullptr) return CountZeros(input.parameter->dtype(), input.values);
  const VerifyCounts counts = VerifyMask(input.parameter->dtype(), input.values, *input.current);
  return counts.zeros + counts.violations;
}

}  // namespace

absl::StatusOr<Selection> Select(const v1::UpdateSpec& spec, absl::Span<const SelectInput> inputs,
                                 Collective& collective, int64_t command_id) {
  const Update update{spec, inputs, collective, {"select", command_id}};
  ESPALIER_RETURN_IF_ERROR(CheckSpec(spec));
  if (spec.parameters().empty()) return Selection{};
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<int64_t> slots, Meet(update));
  switch (spec.method()) {
    case v1::SELECTION_METHOD_MAGNITUDE:
      return SelectEach(update, slots);
    case v1::SELECTION_METHOD_GLOBAL_MAGNITUDE:
      return SelectGlobally(update, slots);
    case v1::SELECTION_METHOD_N_OF_M:
      return SelectNOfM(update, slots);
    case v1::SELECTION_METHOD_CONSTANT:
      return SelectConstant(update);
    default:
      return SelectInvariant(
          absl::StrCat(v1::SelectionMethod_Name(spec.method()), " selects by more than the weights"));
  }
}

absl::StatusOr<std::vector<int64_t>> CountForUpdate(const v1::UpdateSpec& spec, absl::Span<const SelectInput> inputs,
                                                    Collective& collective, int64_t command_id) {
  std::vector<int64_t> counts;
  if (!IsNOfM(spec)) {
    ESPALIER_RETURN_IF_ERROR(CheckInputs(spec, inputs));
    for (const SelectInput& input : inputs) counts.push_back(CountZeroOrMasked(input));
    return counts;
  }
  const Update update{spec, inputs, collective, {"count", command_id}};
  ESPALIER_ASSIGN_OR_RETURN(const std::vector<int64_t> cut, Meet(update));
  for (size_t i = 0; i < inputs.size(); ++i) {
    // One mask at a time: it is made the same way again when the update comes.
    ESPALIER_ASSIGN_OR_RETURN(const Bitmask mask, MaskNOfM(update, i, cut[i] != 0));
    counts.push_back(mask.CountPruned());
  }
  return counts;
}

}  // namespace espalier
