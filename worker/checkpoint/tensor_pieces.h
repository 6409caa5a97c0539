#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "espalier/v1/model.pb.h"

namespace espalier {

// A rectangle of a tensor as it lies in one file: its own elements row-major and without gaps. A tensor that lies in one
// file is one piece.
struct TensorPiece {
  size_t file = 0;              // of Checkpoint::files()
  int64_t offset = 0;           // of its first byte in that file
  std::vector<int64_t> origin;  // index of its first element in the tensor
  std::vector<int64_t> shape;
};

// A tensor of a checkpoint under the name that the files give it.
struct SourceTensor {
  std::string name;
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  std::vector<TensorPiece> pieces;  // tile it; at least one
};

// Reads bytes of one file: file, offset, destination.
using ReadBytes = std::function<absl::Status(size_t, int64_t, absl::Span<std::byte>)>;

// Fills `out` with bytes [begin, begin + out.size()) of the row-major tensor of `shape`, of elements of `element` bytes,
// which the pieces tile. Pieces that are whole rows are read straight into place, others through a bounded buffer.
absl::Status ReadPieces(absl::Span<const TensorPiece> pieces, absl::Span<const int64_t> shape, int64_t element,
                        int64_t begin, absl::Span<std::byte> out, const ReadBytes& read);

}  // namespace espalier
