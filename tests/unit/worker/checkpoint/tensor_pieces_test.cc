#include "worker/checkpoint/tensor_pieces.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/worker/checkpoint/model_files.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

using testing::CutOut;
using testing::RawTensor;

RawTensor Counting(std::vector<int64_t> shape) {
  RawTensor tensor{"t", "U16", std::move(shape), ""};
  std::vector<uint16_t> values(static_cast<size_t>(NumElements(tensor.shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 40503 + 7);
  tensor.bytes = testing::BytesOf(values);
  return tensor;
}

// Cuts a rectangle in two, now and then, at random places: the leaves tile it.
void Tile(std::mt19937_64& random, TensorPiece piece, int depth, std::vector<TensorPiece>& out) {
  if (depth > 0 && !piece.shape.empty()) {
    const size_t d = random() % piece.shape.size();
    if (piece.shape[d] > 1) {
      TensorPiece rest = piece;
      piece.shape[d] = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(piece.shape[d] - 1));
      rest.origin[d] += piece.shape[d];
      rest.shape[d] -= piece.shape[d];
      Tile(random, rest, depth - 1, out);
    }
    return Tile(random, piece, depth - 1, out);
  }
  out.push_back(piece);
}

// Any tiling, read in any range, gives the bytes of the tensor.
TEST(TensorPieces, AnyTilingReadsAsTheTensor) {
  std::mt19937_64 random(99);
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {}, {1}, {17}, {6, 5}, {1, 9}, {9, 1}, {3, 4, 5}, {2, 1, 6}, {2, 3, 2, 4}, {300, 70}}) {
    const RawTensor tensor = Counting(shape);
    for (int round = 0; round < 20; ++round) {
      std::vector<TensorPiece> pieces;
      Tile(random, {0, 0, std::vector<int64_t>(shape.size()), shape}, round % 6, pieces);
      std::vector<std::string> files;
      for (size_t i = 0; i < pieces.size(); ++i) {
        pieces[i].file = i;
        pieces[i].offset = static_cast<int64_t>(i % 3);
        files.push_back(std::string(i % 3, '!') + CutOut(tensor, pieces[i].origin, pieces[i].shape));
      }
      int64_t read = 0;
      const auto reader = [&](size_t file, int64_t offset, absl::Span<std::byte> into) -> absl::Status {
        read += static_cast<int64_t>(into.size());
        if (offset < 0 || static_cast<size_t>(offset) + into.size() > files[file].size()) {
          return absl::OutOfRangeError("reads past its end");
        }
        const auto* from = reinterpret_cast<const std::byte*>(files[file].data()) + offset;
        std::copy(from, from + into.size(), into.begin());
        return absl::OkStatus();
      };
      std::string all(tensor.bytes.size(), '?');
      ASSERT_OK(ReadPieces(pieces, shape, 2, 0, absl::MakeSpan(reinterpret_cast<std::byte*>(all.data()), all.size()),
                           reader));
      ASSERT_EQ(all, tensor.bytes);
      EXPECT_EQ(read, static_cast<int64_t>(all.size())) << "bytes are read once";
      const size_t begin = random() % (all.size() + 1), size = random() % (all.size() - begin + 1);
      std::string part(size, '?');
      ASSERT_OK(ReadPieces(pieces, shape, 2, static_cast<int64_t>(begin),
                           absl::MakeSpan(reinterpret_cast<std::byte*>(part.data()), size), reader));
      ASSERT_EQ(part, tensor.bytes.substr(begin, size)) << begin;
    }
  }
}

// A rank reads its rows, and nothing beside them.
TEST(TensorPieces, RowsAreReadStraightIntoPlace) {
  const std::vector<TensorPiece> pieces = {{0, 8, {0, 0}, {4, 3}}, {1, 8, {4, 0}, {4, 3}}};
  std::string log;
  const auto reader = [&](size_t file, int64_t offset, absl::Span<std::byte> into) {
    absl::StrAppend(&log, file, ":", offset, "+", into.size(), " ");
    return absl::OkStatus();
  };
  std::vector<std::byte> out(12);
  ASSERT_OK(ReadPieces(pieces, {8, 3}, 2, 18, absl::MakeSpan(out), reader));
  EXPECT_EQ(log, "0:26+6 1:8+6 ");
}

}  // namespace
}  // namespace espalier
