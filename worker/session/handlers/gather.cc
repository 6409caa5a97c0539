#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/mask/mask_rows.h"
#include "worker/session/handlers/handlers.h"
#include "worker/session/parameter_upload.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

// What is in flight at rank 0, beside what gRPC buffers.
constexpr int64_t kWindowBytes = 4 << 20;

// Bytes of the whole sequence that a rank holds: [begin, end) in global positions.
struct Piece {
  int64_t begin = 0;
  int64_t end = 0;
};

// Sends bytes [begin, end) of a sequence whose pieces lie on the ranks in order to rank 0, a window at a time, and from
// there into the upload. Every rank goes through every window, whatever happens to the upload.
absl::Status Stream(Collective& group, int64_t command_id, int64_t begin, int64_t end, absl::Span<const Piece> pieces,
                    absl::Span<const std::byte> mine, ParameterUpload* upload) {
  const auto overlap = [](const Piece& piece, int64_t from, int64_t to) {
    const int64_t a = std::clamp(piece.begin, from, to);
    return Piece{a, std::clamp(piece.end, a, to)};
  };
  std::vector<int64_t> sizes(pieces.size());
  std::vector<std::byte> window;
  for (int64_t from = begin; from < end; from += kWindowBytes) {
    const int64_t to = std::min(from + kWindowBytes, end);
    for (size_t r = 0; r < pieces.size(); ++r) {
      const Piece part = overlap(pieces[r], from, to);
      sizes[r] = part.end - part.begin;
    }
    const Piece& own = pieces[static_cast<size_t>(group.rank())];
    const Piece part = overlap(own, from, to);
    // A window behind or before this rank's piece has no position in it.
    absl::Span<const std::byte> in;
    if (part.begin < part.end) {
      in = mine.subspan(static_cast<size_t>(part.begin - own.begin), static_cast<size_t>(part.end - part.begin));
    }
    if (group.rank() == 0) window.resize(static_cast<size_t>(to - from));
    ESPALIER_RETURN_IF_ERROR(group.GatherTo({"gather", command_id}, 0, in, sizes, absl::MakeSpan(window)));
    if (upload != nullptr) upload->Append(window);
  }
  return absl::OkStatus();
}

// The packed rows of a shard's mask, all ones without one.
std::vector<std::byte> PackedMask(const WorkerState& state, const Shard& shard, absl::Span<const int64_t> shape) {
  const auto mask = state.masks.find(shard.parameter->name());
  const std::vector<uint8_t> packed =
      PackRows(shape, shard.range, mask == state.masks.end() ? Bitmask(shard.range.size()) : *mask->second.bits);
  std::vector<std::byte> bytes(packed.size());
  std::transform(packed.begin(), packed.end(), bytes.begin(), [](uint8_t b) { return std::byte{b}; });
  return bytes;
}

}  // namespace

absl::Status GatherParameter(WorkerState& state, const CommandContext& context, CommandResult&) {
  ESPALIER_ASSIGN_OR_RETURN(Collective * group, state.ModelOf(context.command, context.Left()));
  const v1::GatherParameter& op = context.command.gather_parameter();
  ESPALIER_ASSIGN_OR_RETURN(const Shard shard, state.shards->Lookup(op.parameter()));
  const std::vector<int64_t> shape(shard.parameter->shape().begin(), shard.parameter->shape().end());
  const int64_t elements = NumElements(shape);
  if (!op.mask() && (op.begin() < 0 || op.end() < op.begin() || op.end() > elements)) {
    return MakeError(v1::ERROR_REASON_REQUEST_INVALID,
                     absl::StrCat("elements [", op.begin(), ", ", op.end(), ") of ", op.parameter(),
                                  " do not exist; it has ", elements),
                     {{"field", "end"}});
  }
  // Positions in bytes: of the values, or of the packed rows of the mask.
  const int64_t row_elements = RowElements(shape);
  const int64_t row_bytes = PackedShape(shape)[1];
  const auto to_bytes = [&](int64_t element) {
    if (!op.mask()) return element * DtypeSize(shard.parameter->dtype());
    return row_elements == 0 ? 0 : element / row_elements * row_bytes;
  };
  std::vector<Piece> pieces;
  for (int r = 0; r < group->world_size(); ++r) {
    const ShardRange range = RowShard(shape, r, group->world_size());
    pieces.push_back({to_bytes(range.begin), to_bytes(range.end)});
  }
  std::vector<std::byte> packed;
  absl::Span<const std::byte> mine = std::as_const(*shard.storage).bytes();
  if (op.mask()) {
    packed = PackedMask(state, shard, shape);
    mine = packed;
  }
  v1::ParameterHeader header;
  *header.mutable_parameter() = *shard.parameter;
  header.set_generation(state.generation);
  header.set_mask_version(state.mask_version);
  header.set_begin(op.mask() ? 0 : op.begin());
  header.set_end(op.mask() ? elements : op.end());
  const int64_t begin = to_bytes(header.begin());
  const int64_t end = to_bytes(header.end());
  header.set_total_bytes(end - begin);
  std::unique_ptr<ParameterUpload> upload;
  if (group->rank() == 0) {
    upload = std::make_unique<ParameterUpload>(state.services().uploads, context.command.command_id(),
                                               std::move(header), context.Left());
  }
  ESPALIER_RETURN_IF_ERROR(Stream(*group, context.command.command_id(), begin, end, pieces, mine, upload.get()));
  return upload == nullptr ? absl::OkStatus() : upload->Finish();
}

}  // namespace espalier
