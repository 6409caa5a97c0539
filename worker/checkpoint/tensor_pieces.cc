#include "worker/checkpoint/tensor_pieces.h"

#include <algorithm>
#include <cstring>

#include "proto/support/status_macros.h"

namespace espalier {
namespace {

// Read at a time where a piece's bytes have to be spread.
constexpr int64_t kBufferBytes = int64_t{1} << 20;

// A piece as runs: parts, of equal length, that are contiguous both in its file and in the tensor. All in bytes.
class Runs {
 public:
  Runs(const TensorPiece& piece, absl::Span<const int64_t> shape, int64_t element) : piece_(piece), shape_(shape) {
    // Inner dimensions that the piece spans join the run, and so does the first that it does not span.
    inner_ = shape.size();
    length_ = element;
    bool whole = true;
    while (inner_ > 0 && whole) {
      --inner_;
      length_ *= piece.shape[inner_];
      whole = piece.shape[inner_] == shape[inner_];
    }
    for (size_t d = 0; d < inner_; ++d) count_ *= piece.shape[d];
    strides_.resize(shape.size());
    for (size_t d = shape.size(); d-- > 0; element *= shape[d]) strides_[d] = element;
    for (size_t d = 0; d < shape.size(); ++d) first_ += piece.origin[d] * strides_[d];
  }

  int64_t length() const { return length_; }
  int64_t count() const { return length_ == 0 ? 0 : count_; }

  // Where a run begins in the tensor; grows with r.
  int64_t Begin(int64_t r) const {
    int64_t at = first_;
    for (size_t d = inner_; d-- > 0; r /= piece_.shape[d]) at += r % piece_.shape[d] * strides_[d];
    return at;
  }

  // First run that ends after `byte` of the tensor; count() where none does.
  int64_t FirstEndingAfter(int64_t byte) const {
    int64_t low = 0, high = count();
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (Begin(middle) + length_ > byte) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

 private:
  const TensorPiece& piece_;
  const absl::Span<const int64_t> shape_;
  std::vector<int64_t> strides_;  // of the tensor
  size_t inner_ = 0;              // first dimension inside a run
  int64_t length_ = 0;
  int64_t count_ = 1;
  int64_t first_ = 0;
};

absl::Status ReadPiece(const TensorPiece& piece, const Runs& runs, int64_t begin, absl::Span<std::byte> out,
                       std::vector<std::byte>& buffer, const ReadBytes& read) {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  const auto into = [&](int64_t from, int64_t to) {
    return out.subspan(static_cast<size_t>(from - begin), static_cast<size_t>(to - from));
  };
  int64_t r = runs.FirstEndingAfter(begin);
  while (r < runs.count() && runs.Begin(r) < end) {
    const int64_t most = std::max<int64_t>(kBufferBytes / runs.length(), 1);
    if (most == 1 || runs.count() == 1) {
      const int64_t run = runs.Begin(r);
      const int64_t from = std::max(run, begin), to = std::min(run + runs.length(), end);
      ESPALIER_RETURN_IF_ERROR(read(piece.file, piece.offset + r * runs.length() + from - run, into(from, to)));
      ++r;
      continue;
    }
    // Many short runs lie side by side in the file.
    int64_t last = r + 1;
    while (last < runs.count() && last - r < most && runs.Begin(last) < end) ++last;
    buffer.resize(static_cast<size_t>((last - r) * runs.length()));
    ESPALIER_RETURN_IF_ERROR(read(piece.file, piece.offset + r * runs.length(), absl::MakeSpan(buffer)));
    for (const std::byte* source = buffer.data(); r < last; ++r, source += runs.length()) {
      const int64_t run = runs.Begin(r);
      const int64_t from = std::max(run, begin), to = std::min(run + runs.length(), end);
      std::memcpy(into(from, to).data(), source + (from - run), static_cast<size_t>(to - from));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadPieces(absl::Span<const TensorPiece> pieces, absl::Span<const int64_t> shape, int64_t element,
                        int64_t begin, absl::Span<std::byte> out, const ReadBytes& read) {
  std::vector<std::byte> buffer;
  for (const TensorPiece& piece : pieces) {
    ESPALIER_RETURN_IF_ERROR(ReadPiece(piece, Runs(piece, shape, element), begin, out, buffer, read));
  }
  return absl::OkStatus();
}

}  // namespace espalier
