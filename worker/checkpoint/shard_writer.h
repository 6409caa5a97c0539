#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "espalier/v1/worker_service.pb.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/output_file.h"
#include "worker/collective/collective.h"
#include "worker/mask/mask_table.h"
#include "worker/shard/shard_table.h"

namespace espalier {

// Writes what one rank owns of the files of a layout: ranges of tensors, and rows of packed masks. Tensors are looked up
// in the table one by one, when their turn comes.
class ShardWriter {
 public:
  // `check` is asked between pieces whether to go on. All arguments outlive the writer.
  ShardWriter(const SaveLayout& layout, const ShardTable& shards, const MaskTable& masks, const ByteProgress& progress,
              const std::function<absl::Status()>& check);

  // Bytes that this rank owns.
  int64_t total_bytes() const { return total_bytes_; }

  // Writes this rank's pieces into the files, which exist in `directory`. Adds a checksum for each piece, and the files to
  // `written`: they are still to be synced.
  absl::Status Write(const std::string& directory, v1::SaveShardsResult& result, std::vector<OutputFile>& written);

  // Where `directory` is rank 0's alone: entered by all ranks, which send their pieces, a bounded part at a time; rank 0
  // writes them, and has the files in `written`. Each rank adds the checksums of its own pieces. The error is the same on all ranks.
  absl::Status WriteThroughRoot(const std::string& directory, Collective& collective, int64_t command_id,
                                v1::SaveShardsResult& result, std::vector<OutputFile>& written);

 private:
  // What one rank owns of one tensor of a file.
  struct Piece {
    int64_t offset = 0;  // in the file
    absl::Span<const std::byte> bytes;
    std::shared_ptr<Storage> storage;  // keeps `bytes`, or
    std::vector<uint8_t> packed;
  };
  using FileList = std::vector<const PlannedFile*>;

  FileList Files() const;
  // Whether this rank has to do with a file in Write: it owns some of it, or wrote its header and has to sync it.
  bool HasPartIn(const PlannedFile& file) const;
  bool IsMaskFile(const PlannedFile& file) const { return layout_.masks && &file == &*layout_.masks; }
  // Elements of a file's tensor that are among `range` of its parameter.
  static ShardRange Part(const PlannedFile::Tensor& tensor, ShardRange range);
  // Bytes of a file's tensor that hold these elements.
  ShardRange ByteRange(const PlannedFile& file, const PlannedFile::Tensor& tensor, ShardRange part) const;
  absl::StatusOr<Piece> MakePiece(const PlannedFile& file, const PlannedFile::Tensor& tensor) const;
  void Record(const PlannedFile& file, const Piece& piece, uint32_t crc, v1::SaveShardsResult& result);
  void Advance(int64_t bytes);

  const SaveLayout& layout_;
  const ShardTable& shards_;
  const MaskTable& masks_;
  const ByteProgress& progress_;
  const std::function<absl::Status()>& check_;
  int64_t total_bytes_ = 0;
  int64_t done_bytes_ = 0;
};

}  // namespace espalier
