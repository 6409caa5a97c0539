#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/dcp.h"
#include "worker/shard/dtype.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

// Pieces of one tensor: far more than a job has ranks, few enough that each is compared with its neighbours at once.
constexpr size_t kMaxPieces = size_t{1} << 14;

std::string Dimensions(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

bool Intersect(const TensorPiece& a, const TensorPiece& b) {
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.origin[d] >= b.origin[d] + b.shape[d] || b.origin[d] >= a.origin[d] + a.shape[d]) return false;
  }
  return true;
}

class Joiner {
 public:
  Joiner(absl::Span<const SafetensorsHeader> headers, absl::Span<const std::string> files, absl::string_view directory)
      : headers_(headers), files_(files), directory_(directory) {}

  absl::StatusOr<DcpModel> Join() {
    for (const SafetensorsHeader& header : headers_) say_number_ += header.metadata.count(kWeightFilesKey);
    model_.complete = say_number_ != 0;
    ESPALIER_RETURN_IF_ERROR(CheckNames());
    ESPALIER_RETURN_IF_ERROR(CheckNumber());
    for (size_t i = 0; i < headers_.size(); ++i) ESPALIER_RETURN_IF_ERROR(Collect(i));
    for (auto& [name, tensor] : tensors_) {
      ESPALIER_RETURN_IF_ERROR(Tile(tensor));
      model_.tensors.push_back(std::move(tensor));
    }
    return std::move(model_);
  }

 private:
  // Every file says how many there are, or none does.
  absl::Status CheckNumber() {
    for (size_t i = 0; i < headers_.size(); ++i) {
      const auto text = headers_[i].metadata.find(kWeightFilesKey);
      if (text == headers_[i].metadata.end()) continue;
      uint64_t number = 0;
      if (absl::SimpleAtoi(text->second, &number) && number == headers_.size()) continue;
      return CheckpointInvalid(
          directory_, "",
          absl::StrCat("has ", headers_.size(), " weight files; ", files_[i], " is one of ", text->second.substr(0, 40),
                       missing_.empty() ? "; fetch those that are missing, remove those of another save" : missing_));
    }
    if (say_number_ != 0 && say_number_ != headers_.size()) {
      return CheckpointInvalid(directory_, "",
                               absl::StrCat(headers_.size() - say_number_, " of its ", headers_.size(),
                                            " weight files do not say how many there are, the others do: they are not "
                                            "of one save"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckNames() {
    std::set<std::pair<int, int>> present;  // shard, part
    int parts = 0, shards = 0;
    for (const std::string& file : files_) {
      const auto name = ParseDcpFileName(std::filesystem::path(file).filename().string());
      // Readers of this format take any name; what ours do not know they do not judge.
      if (!name) return absl::OkStatus();
      if (parts != 0 && name->parts != parts) {
        return CheckpointInvalid(file, "",
                                 absl::StrCat("is one of ", name->parts, " files of a rank, others are of ", parts,
                                              ": they are not of one save"));
      }
      parts = name->parts;
      shards = std::max(shards, name->shard);
      present.emplace(name->shard, name->part);
    }
    std::set<int> seen_parts;
    for (const auto& [shard, part] : present) seen_parts.insert(part);
    for (int part = 1; part <= parts; ++part) {
      if (seen_parts.count(part) != 0) continue;
      return CheckpointInvalid(directory_, "",
                               absl::StrCat("has no file of part ", part, " of ", parts, ": no shard-*-model-",
                                            MakeDcpFileName({1, part, parts}).substr(18)));
    }
    std::vector<std::string> missing;
    // A rank that owns nothing writes no file, so this alone is no error. Numbers may be absurd: not all are looked at.
    for (int shard = 1; shard <= shards && missing.size() <= files_.size(); ++shard) {
      for (int part = 1; part <= parts && missing.size() <= files_.size(); ++part) {
        if (present.count({shard, part}) == 0) missing.push_back(MakeDcpFileName({shard, part, parts}));
      }
    }
    if (missing.empty()) return absl::OkStatus();
    missing_ = absl::StrCat("; not there: ", JoinLimited(missing, ", "));
    if (!model_.complete) {
      model_.notes.push_back(
          absl::StrCat(JoinLimited(missing, ", "), " not there, and nothing says whether there should be"));
    }
    return absl::OkStatus();
  }

  absl::Status Collect(size_t file) {
    ESPALIER_ASSIGN_OR_RETURN(std::vector<DcpShard> shards, ParseDcpShards(headers_[file], files_[file]));
    for (size_t i = 0; i < shards.size(); ++i) {
      const TensorEntry& entry = headers_[file].tensors[i];
      SourceTensor& tensor = tensors_[shards[i].name];
      if (tensor.pieces.empty()) {
        tensor.name = shards[i].name;
        tensor.dtype = entry.dtype;
        tensor.shape.resize(entry.shape.size());
      }
      if (entry.dtype != tensor.dtype || entry.shape.size() != tensor.shape.size()) {
        const std::string& other = files_[tensor.pieces.front().file];
        return CheckpointInvalid(
            files_[file], tensor.name,
            absl::StrCat("has the dtype ", DtypeName(entry.dtype), " and ", entry.shape.size(), " dimensions here, ",
                         DtypeName(tensor.dtype), " and ", tensor.shape.size(), " in ", other));
      }
      TensorPiece piece{file, entry.begin, std::move(shards[i].origin), entry.shape};
      for (size_t d = 0; d < entry.shape.size(); ++d) {
        tensor.shape[d] = std::max(tensor.shape[d], piece.origin[d] + piece.shape[d]);
      }
      tensor.pieces.push_back(std::move(piece));
      if (tensor.pieces.size() > kMaxPieces) {
        return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                         absl::StrCat(files_[file], ": tensor \"", tensor.name.substr(0, 300), "\": is in more than ",
                                      kMaxPieces, " pieces; consolidate the checkpoint first"),
                         {{"limit", absl::StrCat(kMaxPieces)}, {"value", "pieces of a tensor"}});
      }
    }
    return absl::OkStatus();
  }

  // The pieces of a tensor are disjoint and have as many elements as it: so they are all of it.
  absl::Status Tile(SourceTensor& tensor) {
    int64_t bytes = DtypeSize(tensor.dtype);
    for (const int64_t dimension : tensor.shape) {
      if (dimension == 0 || !__builtin_mul_overflow(bytes, dimension, &bytes)) continue;
      return CheckpointInvalid(
          directory_, tensor.name,
          absl::StrCat("would have the shape ", Dimensions(tensor.shape), ", which is more than its files hold"));
    }
    std::vector<TensorPiece> all = std::move(tensor.pieces);
    std::sort(all.begin(), all.end(), [](const TensorPiece& a, const TensorPiece& b) {
      return std::tie(a.origin, a.shape, a.file, a.offset) < std::tie(b.origin, b.shape, b.file, b.offset);
    });
    tensor.pieces.clear();
    for (TensorPiece& piece : all) {
      // Ranks without rows say so with a piece of nothing.
      if (NumElements(piece.shape) == 0) continue;
      if (!tensor.pieces.empty() && tensor.pieces.back().origin == piece.origin &&
          tensor.pieces.back().shape == piece.shape) {
        model_.replicas.push_back({model_.tensors.size(), tensor.pieces.back(), std::move(piece)});
        continue;
      }
      tensor.pieces.push_back(std::move(piece));
    }
    ESPALIER_RETURN_IF_ERROR(CheckDisjoint(tensor));
    int64_t elements = 0;
    for (const TensorPiece& piece : tensor.pieces) elements += NumElements(piece.shape);
    if (elements != NumElements(tensor.shape)) return Gap(tensor, elements);
    if (tensor.pieces.empty()) {
      tensor.pieces.push_back(std::move(all.front()));
      tensor.pieces.front().origin.assign(tensor.shape.size(), 0);
      tensor.pieces.front().shape = tensor.shape;
    }
    return absl::OkStatus();
  }

  absl::Status CheckDisjoint(const SourceTensor& tensor) const {
    const std::vector<TensorPiece>& pieces = tensor.pieces;
    for (size_t i = 0; i < pieces.size(); ++i) {
      for (size_t j = i + 1; j < pieces.size() && pieces[j].origin[0] < pieces[i].origin[0] + pieces[i].shape[0]; ++j) {
        if (!Intersect(pieces[i], pieces[j])) continue;
        const auto say = [](const TensorPiece& p) {
          return absl::StrCat(Dimensions(p.shape), " at ", Dimensions(p.origin));
        };
        return CheckpointInvalid(files_[pieces[j].file], tensor.name,
                                 absl::StrCat("has a piece ", say(pieces[j]), " that overlaps the piece ",
                                              say(pieces[i]), " in ", files_[pieces[i].file]));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Gap(const SourceTensor& tensor, int64_t elements) const {
    // Rows that no piece has a part of say most; pieces are sorted by where they begin.
    int64_t row = 0;
    for (const TensorPiece& piece : tensor.pieces) {
      if (piece.origin[0] > row) {
        return CheckpointInvalid(directory_, tensor.name,
                                 absl::StrCat("has the shape ", Dimensions(tensor.shape), " by its pieces, and rows ",
                                              row, " to ", piece.origin[0] - 1, " are in no file", missing_));
      }
      row = std::max(row, piece.origin[0] + piece.shape[0]);
    }
    return CheckpointInvalid(
        directory_, tensor.name,
        absl::StrCat("has the shape ", Dimensions(tensor.shape), " by its pieces, and ", elements, " of its ",
                     NumElements(tensor.shape), " elements are in the files", missing_));
  }

  const absl::Span<const SafetensorsHeader> headers_;
  const absl::Span<const std::string> files_;
  const absl::string_view directory_;
  DcpModel model_;
  std::map<std::string, SourceTensor> tensors_;
  size_t say_number_ = 0;  // files
  std::string missing_;    // for errors
};

}  // namespace

absl::StatusOr<DcpModel> JoinDcpShards(absl::Span<const SafetensorsHeader> headers, absl::Span<const std::string> files,
                                       absl::string_view directory) {
  return Joiner(headers, files, directory).Join();
}

}  // namespace espalier
