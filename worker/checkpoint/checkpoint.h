#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "espalier/v1/model.pb.h"
#include "worker/checkpoint/input_file.h"
#include "worker/checkpoint/path_roots.h"
#include "worker/checkpoint/tensor_pieces.h"

namespace espalier {

// Called with (bytes done, bytes in all) by the thread that called.
using ByteProgress = std::function<void(int64_t, int64_t)>;

struct CheckpointOptions {
  // Masks stored in espalier/masks.safetensors are not looked at.
  bool ignore_stored_masks = false;
  PathRoots roots;
};

// A checkpoint on disk, validated as a whole and held open: what is read later are the files that were validated, also
// when somebody replaces the directory. Cheap to copy. Thread-safe once made.
class Checkpoint {
 public:
  // `path`: a .safetensors file, or a directory with one, or with model.safetensors.index.json, or with the sharded files
  // of PyTorch DCP's Hugging Face writer (dcp.h), also in a folder `sharded`. Headers, index and config.json are read;
  // no data, but of pieces that two ranks saved. Links are followed, and tested against the roots.
  //
  // CHECKPOINT_INVALID (file, tensor, what): anything malformed, missing - all missing files are named - or
  // contradictory; several files without an index; two names that become one; shards that do not make up their tensors.
  // PATH_NOT_ALLOWED.
  static absl::StatusOr<Checkpoint> Open(const std::string& path, const CheckpointOptions& options = {});

  // Canonical names, sorted bytewise; aliases of tied embeddings; layer kinds; has_stored_mask; notes.
  const v1::ModelDescription& description() const { return state_->description; }

  // Resolved path that was opened, and the directory in which config.json and espalier/ are looked for.
  const std::string& path() const { return state_->path; }
  const std::string& directory() const { return state_->directory; }

  // Weight files that were opened, sorted by name.
  const std::vector<std::shared_ptr<const InputFile>>& files() const { return state_->files; }

  // Where the tensor of description().parameters(i) lies.
  absl::Span<const TensorPiece> pieces(size_t i) const { return state_->pieces[i]; }

  // Index of a parameter by canonical name; -1 without.
  int FindParameter(absl::string_view name) const;

  // Reads bytes [begin, begin + out.size()) of the tensor of a parameter.
  absl::Status ReadTensor(size_t i, int64_t begin, absl::Span<std::byte> out) const;

  // The other files of the directory itself, open: config.json, tokenizer and whatever else is no weight format, hidden or in
  // a sub-folder. What cannot be opened is in the notes. For a single file only those a model is likely to need.
  const std::vector<std::shared_ptr<const InputFile>>& other_files() const { return state_->other_files; }

  // espalier/masks.safetensors; null without, or when stored masks are ignored. Offsets of the packed masks in it by
  // canonical parameter name; their size follows from PackedShape.
  const InputFile* mask_file() const { return state_->mask_file.get(); }
  const std::map<std::string, int64_t, std::less<>>& mask_offsets() const { return state_->mask_offsets; }

  // `format` in the metadata of the weight files, "pt" where they have none.
  const std::string& format() const { return state_->format; }

 private:
  struct State {
    std::string path;
    std::string directory;
    std::string format;
    v1::ModelDescription description;
    std::vector<std::shared_ptr<const InputFile>> files;
    std::vector<std::vector<TensorPiece>> pieces;
    std::vector<std::shared_ptr<const InputFile>> other_files;
    std::shared_ptr<const InputFile> mask_file;
    std::map<std::string, int64_t, std::less<>> mask_offsets;
  };
  friend class CheckpointOpener;
  explicit Checkpoint(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace espalier
