#include "worker/checkpoint/shard_writer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/agree.h"
#include "worker/checkpoint/output_file.h"
#include "worker/mask/mask_rows.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

// Checksummed and then written while it is in the cache.
constexpr size_t kWriteBytes = size_t{1} << 20;
// Handed to the disk at a time, long before the sync at the end.
constexpr size_t kWritebackBytes = size_t{16} << 20;
// Received by rank 0 from all ranks together at a time.
constexpr int64_t kGatherBytes = int64_t{64} << 20;

constexpr absl::string_view kTag = "save";

absl::Status Invariant(absl::string_view what) {
  return MakeError(v1::ERROR_REASON_INVARIANT, absl::StrCat("saving: ", what),
                   {{"what", std::string(what)}, {"where", "ShardWriter"}});
}

}  // namespace

ShardWriter::ShardWriter(const SaveLayout& layout, const ShardTable& shards, const MaskTable& masks,
                         const ByteProgress& progress, const std::function<absl::Status()>& check)
    : layout_(layout), shards_(shards), masks_(masks), progress_(progress), check_(check) {
  for (const PlannedFile* file : Files()) {
    for (const PlannedFile::Tensor& tensor : file->tensors) {
      const auto shard = shards_.Lookup(tensor.parameter->name());
      if (shard.ok()) total_bytes_ += ByteRange(*file, tensor, Part(tensor, shard->range)).size();
    }
  }
}

ShardWriter::FileList ShardWriter::Files() const {
  FileList files;
  for (const PlannedFile& file : layout_.weights) files.push_back(&file);
  if (layout_.masks) files.push_back(&*layout_.masks);
  return files;
}

bool ShardWriter::HasPartIn(const PlannedFile& file) const {
  return shards_.rank() == 0 ||
         std::any_of(file.tensors.begin(), file.tensors.end(), [&](const PlannedFile::Tensor& tensor) {
           const auto shard = shards_.Lookup(tensor.parameter->name());
           return shard.ok() && !Part(tensor, shard->range).empty();
         });
}

ShardRange ShardWriter::Part(const PlannedFile::Tensor& tensor, ShardRange range) {
  const int64_t begin = std::clamp(range.begin, tensor.range.begin, tensor.range.end);
  return {begin, std::clamp(range.end, begin, tensor.range.end)};
}

ShardRange ShardWriter::ByteRange(const PlannedFile& file, const PlannedFile::Tensor& tensor, ShardRange part) const {
  int64_t elements = 1, bytes = DtypeSize(tensor.parameter->dtype());
  if (IsMaskFile(file)) {
    elements = std::max<int64_t>(RowElements(tensor.parameter->shape()), 1);
    bytes = PackedShape(tensor.parameter->shape())[1];
  }
  const auto at = [&](int64_t element) { return tensor.offset + (element - tensor.range.begin) / elements * bytes; };
  return {at(part.begin), at(part.end)};
}

absl::StatusOr<ShardWriter::Piece> ShardWriter::MakePiece(const PlannedFile& file,
                                                          const PlannedFile::Tensor& tensor) const {
  ESPALIER_ASSIGN_OR_RETURN(const Shard shard, shards_.Lookup(tensor.parameter->name()));
  const ShardRange part = Part(tensor, shard.range);
  const ShardRange range = ByteRange(file, tensor, part);
  Piece piece;
  piece.offset = range.begin;
  // The clamped ends of nothing may lie outside the shard.
  if (part.empty()) return piece;
  if (!IsMaskFile(file)) {
    piece.storage = shard.storage;
    const int64_t size = DtypeSize(tensor.parameter->dtype());
    piece.bytes = std::as_const(*shard.storage).bytes();
    if (static_cast<int64_t>(piece.bytes.size()) == shard.range.size() * size) {
      piece.bytes = piece.bytes.subspan(static_cast<size_t>((part.begin - shard.range.begin) * size),
                                        static_cast<size_t>(part.size() * size));
    }
  } else {
    const auto mask = masks_.find(tensor.parameter->name());
    if (mask == masks_.end() || mask->second.bits->size() != shard.range.size()) {
      return Invariant(absl::StrCat("the mask of ", tensor.parameter->name(), " does not cover its range"));
    }
    piece.packed = PackRows(tensor.parameter->shape(), shard.range, *mask->second.bits);
    piece.bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(piece.packed.data()), piece.packed.size());
  }
  if (static_cast<int64_t>(piece.bytes.size()) != range.size()) {
    return Invariant(
        absl::StrCat(tensor.parameter->name(), " has ", piece.bytes.size(), " bytes where ", range.size(), " belong"));
  }
  return piece;
}

void ShardWriter::Record(const PlannedFile& file, const Piece& piece, uint32_t crc, v1::SaveShardsResult& result) {
  if (piece.bytes.empty()) return;
  const auto length = static_cast<int64_t>(piece.bytes.size());
  result.set_bytes_written(result.bytes_written() + length);
  // One that continues the last is joined to it: a rank that owns whole tensors answers one checksum a file.
  if (result.checksums_size() > 0) {
    v1::RangeChecksum& last = *result.mutable_checksums(result.checksums_size() - 1);
    if (last.file() == file.name && last.offset() + last.length() == piece.offset) {
      last.set_crc32(Crc32Combine(last.crc32(), crc, static_cast<uint64_t>(length)));
      last.set_length(last.length() + length);
      return;
    }
  }
  v1::RangeChecksum& checksum = *result.add_checksums();
  checksum.set_file(file.name);
  checksum.set_offset(piece.offset);
  checksum.set_length(length);
  checksum.set_crc32(crc);
}

void ShardWriter::Advance(int64_t bytes) {
  done_bytes_ += bytes;
  if (progress_) progress_(done_bytes_, total_bytes_);
}

absl::Status ShardWriter::Write(const std::string& directory, v1::SaveShardsResult& result,
                                std::vector<OutputFile>& written) {
  for (const PlannedFile* file : Files()) {
    if (!HasPartIn(*file)) continue;
    ESPALIER_ASSIGN_OR_RETURN(OutputFile out, OutputFile::Open(absl::StrCat(directory, "/", file->name)));
    for (const PlannedFile::Tensor& tensor : file->tensors) {
      ESPALIER_ASSIGN_OR_RETURN(const Piece piece, MakePiece(*file, tensor));
      uint32_t crc = 0;
      for (size_t at = 0, begun = 0; at < piece.bytes.size(); at += kWriteBytes) {
        const auto part = piece.bytes.subspan(at, kWriteBytes);
        ESPALIER_RETURN_IF_ERROR(check_());
        crc = Crc32(crc, part.data(), part.size());
        ESPALIER_RETURN_IF_ERROR(out.WriteAt(piece.offset + static_cast<int64_t>(at), part));
        Advance(static_cast<int64_t>(part.size()));
        const size_t end = at + part.size();
        if (end - begun >= kWritebackBytes || end == piece.bytes.size()) {
          out.BeginWriteback(piece.offset + static_cast<int64_t>(begun), static_cast<int64_t>(end - begun));
          begun = end;
        }
      }
      Record(*file, piece, crc, result);
    }
    written.push_back(std::move(out));
  }
  return absl::OkStatus();
}

absl::Status ShardWriter::WriteThroughRoot(const std::string& directory, Collective& collective, int64_t command_id,
                                           v1::SaveShardsResult& result, std::vector<OutputFile>& written) {
  const CollectiveTag tag = {.operation = kTag, .command_id = command_id};
  const auto world = static_cast<size_t>(collective.world_size());
  const bool root = collective.rank() == 0;
  const int64_t step = std::max<int64_t>(kGatherBytes / static_cast<int64_t>(world), 1 << 16);
  std::vector<std::byte> received;
  for (const PlannedFile* file : Files()) {
    // An error of this rank waits until the file is through: the others are in the same sequence of calls.
    absl::Status mine;
    std::optional<OutputFile> out;
    if (root) {
      auto opened = OutputFile::Open(absl::StrCat(directory, "/", file->name));
      if (opened.ok()) {
        out = *std::move(opened);
      } else {
        mine = opened.status();
      }
    }
    for (const PlannedFile::Tensor& tensor : file->tensors) {
      auto piece = MakePiece(*file, tensor);
      if (mine.ok()) mine = piece.ok() ? check_() : piece.status();
      // Every rank must know what every other sends: offsets and sizes of all.
      std::vector<int64_t> mine_range = {piece.ok() ? piece->offset : 0,
                                         piece.ok() ? static_cast<int64_t>(piece->bytes.size()) : 0};
      std::vector<int64_t> ranges(2 * world);
      const auto as_bytes = [](std::vector<int64_t>& v) {
        return absl::MakeSpan(reinterpret_cast<std::byte*>(v.data()), v.size() * sizeof(int64_t));
      };
      ESPALIER_RETURN_IF_ERROR(collective.AllGather(tag, as_bytes(mine_range), as_bytes(ranges)));
      int64_t longest = 0;
      for (size_t r = 0; r < world; ++r) longest = std::max(longest, ranges[2 * r + 1]);
      uint32_t crc = 0;
      for (int64_t at = 0; at < longest; at += step) {
        std::vector<int64_t> sizes(world);
        for (size_t r = 0; r < world; ++r) sizes[r] = std::clamp<int64_t>(ranges[2 * r + 1] - at, 0, step);
        const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
        if (root) received.resize(std::max(received.size(), static_cast<size_t>(all)));
        const absl::Span<std::byte> into = absl::MakeSpan(received).first(root ? static_cast<size_t>(all) : 0);
        const int64_t own = sizes[static_cast<size_t>(collective.rank())];
        const auto part = own == 0 ? absl::Span<const std::byte>()
                                   : piece->bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(own));
        ESPALIER_RETURN_IF_ERROR(collective.GatherTo(tag, 0, part, sizes, into));
        crc = Crc32(crc, part.data(), part.size());
        size_t from = 0;
        for (size_t r = 0; root && r < world; ++r) {
          const auto size = static_cast<size_t>(sizes[r]);
          if (mine.ok()) mine = out->WriteAt(ranges[2 * r] + at, into.subspan(from, size));
          from += size;
        }
        Advance(own);
      }
      if (piece.ok()) Record(*file, *piece, crc, result);
    }
    ESPALIER_RETURN_IF_ERROR(AgreeOn(mine, collective, tag));
    if (root) written.push_back(*std::move(out));
  }
  return absl::OkStatus();
}

}  // namespace espalier
