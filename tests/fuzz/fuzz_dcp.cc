// Any bytes in the place of two files of PyTorch DCP's shards: refused or understood, and what is understood is tiled by its
// pieces, which lie in the files. The input is two safetensors files, the first's length before them (2 bytes).

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "worker/checkpoint/dcp.h"
#include "worker/shard/dtype.h"
#include "worker/shard/shard_range.h"

namespace {

using namespace espalier;  // one file of a program of its own

void Require(bool truth) {
  if (!truth) abort();
}

void CheckPiece(const SourceTensor& tensor, const TensorPiece& piece, const std::vector<SafetensorsHeader>& headers,
                const std::vector<std::string>& files) {
  Require(piece.file < files.size() && piece.origin.size() == tensor.shape.size());
  Require(piece.offset >= headers[piece.file].data_begin);
  const int64_t bytes = NumElements(piece.shape) * DtypeSize(tensor.dtype);
  Require(piece.offset + bytes <= static_cast<int64_t>(files[piece.file].size()));
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    Require(piece.origin[d] >= 0 && piece.origin[d] + piece.shape[d] <= tensor.shape[d]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t first = std::min<size_t>(data[0] | data[1] << 8, size - 2);
  const std::string all(data + 2, data + size);
  const std::vector<std::string> files = {all.substr(0, first), all.substr(first)};
  std::vector<SafetensorsHeader> headers;
  for (const std::string& file : files) {
    auto header = ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()), "fuzz");
    if (!header.ok()) return 0;
    const auto shards = ParseDcpShards(*header, "fuzz");
    Require(!shards.ok() || shards->size() == header->tensors.size());
    headers.push_back(*std::move(header));
  }
  // Names with and without their meaning.
  const std::vector<std::string> names =
      size % 2 == 0 ? std::vector<std::string>{"a", "b"}
                    : std::vector<std::string>{MakeDcpFileName({1, 1, 1}), MakeDcpFileName({3, 1, 1})};
  const auto model = JoinDcpShards(headers, names, "fuzz");
  if (!model.ok()) {
    Require(!model.status().message().empty());
    return 0;
  }
  for (const SourceTensor& tensor : model->tensors) {
    Require(!tensor.pieces.empty());
    int64_t elements = 0;
    for (const TensorPiece& piece : tensor.pieces) {
      CheckPiece(tensor, piece, headers, files);
      elements += NumElements(piece.shape);
    }
    Require(elements == NumElements(tensor.shape));
    // Read byte by byte by its pieces, every byte is written once.
    const int64_t bytes = elements * DtypeSize(tensor.dtype);
    std::vector<std::byte> out(static_cast<size_t>(bytes));
    int64_t read = 0;
    const auto reader = [&](size_t file, int64_t offset, absl::Span<std::byte> into) {
      Require(offset >= 0 && static_cast<size_t>(offset) + into.size() <= files[file].size());
      read += static_cast<int64_t>(into.size());
      return absl::OkStatus();
    };
    Require(ReadPieces(tensor.pieces, tensor.shape, DtypeSize(tensor.dtype), 0, absl::MakeSpan(out), reader).ok());
    Require(read == bytes);
  }
  for (const DcpModel::Replica& replica : model->replicas) {
    CheckPiece(model->tensors[replica.tensor], replica.first, headers, files);
    CheckPiece(model->tensors[replica.tensor], replica.second, headers, files);
  }
  return 0;
}
