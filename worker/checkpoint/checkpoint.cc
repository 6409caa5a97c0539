#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/index_file.h"
#include "worker/checkpoint/mask_file.h"
#include "worker/checkpoint/model_config.h"
#include "worker/checkpoint/replace.h"
#include "worker/checkpoint/safetensors_header.h"
#include "worker/checkpoint/source_tensors.h"
#include "worker/shard/dtype.h"
#include "worker/shard/layer_kinds.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

constexpr char kWeights[] = "model.safetensors";
constexpr char kExtension[] = ".safetensors";
// Where DCP's Hugging Face writer leaves the pieces, beside the tensors that it joins of them.
constexpr char kShardedFolder[] = "sharded";
constexpr char kHead[] = "lm_head.weight";

bool EndsWithOneOf(absl::string_view name, std::initializer_list<absl::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](absl::string_view end) { return absl::EndsWith(name, end); });
}

// Weights of any kind, and what lists them, would say something else than the weights that are written.
bool IsCopied(absl::string_view name, bool single_file) {
  if (absl::StartsWith(name, ".")) return false;
  if (EndsWithOneOf(
          name, {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".ckpt", ".onnx", ".index.json"})) {
    return false;
  }
  return !single_file || EndsWithOneOf(name, {".json", ".txt", ".model", ".jinja"});
}

bool Exists(const std::string& path) {
  std::error_code error;
  // A link to nothing is there: opening it says what is wrong.
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

absl::StatusOr<SafetensorsHeader> ReadHeader(const InputFile& file) {
  std::string bytes(static_cast<size_t>(std::min<int64_t>(8, file.size())), '\0');
  const auto read = [&](size_t from) {
    return file.ReadAt(static_cast<int64_t>(from),
                       absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()) + from, bytes.size() - from));
  };
  ESPALIER_RETURN_IF_ERROR(read(0));
  ESPALIER_ASSIGN_OR_RETURN(const int64_t length, ParseHeaderLength(bytes, file.size(), file.name()));
  bytes.resize(8 + static_cast<size_t>(length));
  ESPALIER_RETURN_IF_ERROR(read(8));
  return ParseSafetensorsHeader(bytes, file.size(), file.name());
}

}  // namespace

// Builds the state of a Checkpoint step by step.
class CheckpointOpener {
 public:
  CheckpointOpener(const CheckpointOptions& options) : options_(options) {}

  absl::StatusOr<Checkpoint> Open(const std::string& path) {
    ESPALIER_ASSIGN_OR_RETURN(state_->path, options_.roots.Resolve(path));
    MendReplaced(state_->path);
    std::error_code error;
    const auto status = std::filesystem::status(state_->path, error);
    if (!std::filesystem::exists(status)) return CheckpointInvalid(state_->path, "", "does not exist");
    if (std::filesystem::is_directory(status)) {
      state_->directory = state_->path;
      ESPALIER_RETURN_IF_ERROR(ListDirectory());
    } else {
      if (!absl::EndsWith(state_->path, kExtension) && !absl::EndsWith(path, kExtension)) {
        return CheckpointInvalid(state_->path, "", "is neither a directory nor a .safetensors file");
      }
      single_file_ = true;
      // Beside the name that was given: a hub cache has config.json there, not beside the blob.
      ESPALIER_ASSIGN_OR_RETURN(state_->directory,
                                options_.roots.Resolve(std::filesystem::absolute(path).parent_path().string()));
      names_.insert(std::filesystem::path(path).filename().string());
    }
    ESPALIER_RETURN_IF_ERROR(OpenFiles());
    ESPALIER_ASSIGN_OR_RETURN(tensors_, TensorsOf(weights_));
    for (std::string& note : tensors_.notes) Note(std::move(note));
    ESPALIER_RETURN_IF_ERROR(Describe());
    OpenOthers();
    if (!options_.ignore_stored_masks) ESPALIER_RETURN_IF_ERROR(OpenMasks());
    return Checkpoint(state_);
  }

 private:
  std::string Display(const std::string& name) const { return absl::StrCat(state_->directory, "/", name); }
  void Note(std::string text) { state_->description.add_notes(std::move(text)); }

  absl::StatusOr<std::shared_ptr<const InputFile>> OpenFile(const std::string& name) {
    ESPALIER_ASSIGN_OR_RETURN(const std::string resolved, options_.roots.Resolve(Display(name)));
    return InputFile::Open(resolved, Display(name));
  }

  static std::error_code List(const std::string& directory, std::set<std::string>& names) {
    std::error_code error;
    for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
      names.insert(it->path().filename().string());
    }
    return error;
  }

  // Which files are the model: decided by the index, else there must be exactly one, or the shards of DCP.
  absl::Status ListDirectory() {
    std::set<std::string> all, present, other;
    if (const std::error_code error = List(state_->directory, all)) {
      return CheckpointInvalid(state_->directory, "", absl::StrCat("cannot be listed: ", error.message()));
    }
    for (const std::string& name : all) {
      if (absl::EndsWith(name, kExtension)) present.insert(name);
      if (EndsWithOneOf(name, {".bin", ".gguf", ".pt"})) other.insert(name);
    }
    if (Exists(Display(kIndexName))) {
      ESPALIER_ASSIGN_OR_RETURN(const auto file, OpenFile(kIndexName));
      ESPALIER_ASSIGN_OR_RETURN(const std::string text, file->ReadText(kMaxIndexBytes));
      ESPALIER_ASSIGN_OR_RETURN(weights_.index, ParseIndex(text, file->name()));
      for (const auto& [tensor, name] : weights_.index->weight_map) names_.insert(name);
      return CheckListed(present);
    }
    if (present.empty() && all.count(kShardedFolder) != 0) {
      std::set<std::string> shards;
      // What cannot be listed holds nothing for us, which is said below.
      if (!List(Display(kShardedFolder), shards)) {
        for (const std::string& name : shards) {
          if (absl::EndsWith(name, kExtension)) present.insert(absl::StrCat(kShardedFolder, "/", name));
        }
      }
    }
    if (present.empty()) {
      return CheckpointInvalid(state_->directory, "",
                               other.empty() ? "holds no .safetensors file"
                                             : absl::StrCat("holds no .safetensors file; ", JoinLimited(other, ", "),
                                                            " cannot be read: convert the model to safetensors"));
    }
    names_ = present;
    return absl::OkStatus();
  }

  absl::Status CheckListed(const std::set<std::string>& present) {
    std::vector<std::string> missing, ignored;
    std::set_difference(names_.begin(), names_.end(), present.begin(), present.end(), std::back_inserter(missing));
    std::set_difference(present.begin(), present.end(), names_.begin(), names_.end(), std::back_inserter(ignored));
    if (!missing.empty()) {
      return CheckpointInvalid(Display(kIndexName), "",
                               absl::StrCat("names ", missing.size(), " of ", names_.size(),
                                            " files that are not there: ", JoinLimited(missing, ", ")));
    }
    for (const std::string& name : ignored) {
      if (name == kWeights) {
        return CheckpointInvalid(Display(kWeights), "",
                                 absl::StrCat("stands beside ", kIndexName,
                                              ", which does not list it, and tools disagree "
                                              "which of the two is the model: remove one"));
      }
      Note(absl::StrCat(name, " is ignored: ", kIndexName, " does not list it"));
    }
    return absl::OkStatus();
  }

  absl::Status OpenFiles() {
    weights_.directory = state_->directory;
    weights_.single = single_file_;
    for (const std::string& name : names_) {
      ESPALIER_ASSIGN_OR_RETURN(auto file, OpenFile(name));
      ESPALIER_ASSIGN_OR_RETURN(SafetensorsHeader header, ReadHeader(*file));
      weights_.headers.push_back(std::move(header));
      weights_.names.push_back(name);
      weights_.files.push_back(file);
      state_->files.push_back(std::move(file));
    }
    return absl::OkStatus();
  }

  absl::Status Describe() {
    ModelConfig config;
    if (Exists(Display("config.json"))) {
      ESPALIER_ASSIGN_OR_RETURN(const auto file, OpenFile("config.json"));
      ESPALIER_ASSIGN_OR_RETURN(const std::string text, file->ReadText(kMaxConfigBytes));
      ESPALIER_ASSIGN_OR_RETURN(config, ParseModelConfig(text, file->name()));
    }
    std::vector<std::string> names;
    for (const SourceTensor& tensor : tensors_.tensors) names.push_back(tensor.name);
    auto canonical = CanonicalNames(names);
    if (!canonical.ok()) {
      return Annotate(canonical.status(), absl::StrCat(state_->path, ": "), {{"file", state_->path}});
    }
    std::vector<std::pair<std::string, SourceTensor*>> sorted;
    for (size_t i = 0; i < names.size(); ++i) {
      sorted.emplace_back(std::move((*canonical)[i]), &tensors_.tensors[i]);
    }
    std::sort(sorted.begin(), sorted.end());

    v1::ModelDescription& model = state_->description;
    model.set_architecture(config.hints.architecture);
    model.set_model_type(config.hints.model_type);
    int64_t total = 0;
    for (auto& [name, tensor] : sorted) {
      v1::Parameter& parameter = *model.add_parameters();
      parameter.set_name(std::move(name));
      parameter.set_dtype(tensor->dtype);
      parameter.mutable_shape()->Add(tensor->shape.begin(), tensor->shape.end());
      ClassifyParameter(config.hints, parameter);
      total += NumElements(tensor->shape) * DtypeSize(tensor->dtype);
      state_->pieces.push_back(std::move(tensor->pieces));
    }
    model.set_total_bytes(total);
    if (tensors_.open_ended) ESPALIER_RETURN_IF_ERROR(CheckEnd(config));
    if (config.tie_word_embeddings) Tie();

    state_->format = "pt";
    if (!weights_.headers.empty()) {
      const std::map<std::string, std::string>& metadata = weights_.headers.front().metadata;
      if (const auto format = metadata.find("format"); format != metadata.end()) state_->format = format->second;
    }
    return absl::OkStatus();
  }

  // The embedding by its usual names; null without, or with two of them.
  v1::Parameter* FindEmbedding() {
    v1::Parameter* embedding = nullptr;
    for (v1::Parameter& parameter : *state_->description.mutable_parameters()) {
      for (const absl::string_view last : {"embed_tokens.weight", "wte.weight", "word_embeddings.weight"}) {
        if (parameter.name() != last && !absl::EndsWith(parameter.name(), absl::StrCat(".", last))) continue;
        if (embedding != nullptr) return nullptr;
        embedding = &parameter;
      }
    }
    return embedding;
  }

  // Shards whose last files are missing look like those of a smaller model. The embedding, cut as everything is, must have
  // a row for each word that config.json knows.
  absl::Status CheckEnd(const ModelConfig& config) {
    const v1::Parameter* embedding = FindEmbedding();
    if (embedding == nullptr || config.vocab_size <= 0) {
      Note(absl::StrCat("nothing says how many files of shards there should be; ", names_.size(),
                        " are there. Were the last ones missing, tensors would be shorter than they are"));
      return absl::OkStatus();
    }
    if (embedding->shape_size() > 0 && embedding->shape(0) >= config.vocab_size) return absl::OkStatus();
    return CheckpointInvalid(
        state_->directory, embedding->name(),
        absl::StrCat("has ", embedding->shape_size() > 0 ? embedding->shape(0) : 0, " rows in the ", names_.size(),
                     " files of shards that are there, config.json says vocab_size ", config.vocab_size,
                     ": the last files are missing, or config.json is another model's"));
  }

  // The output layer shares the embedding's storage and is not in the files.
  void Tie() {
    for (const v1::Parameter& parameter : state_->description.parameters()) {
      if (parameter.name() == kHead) {
        Note(absl::StrCat(kHead, " is in the files although config.json ties it to the embedding; both are kept"));
        return;
      }
    }
    // Two of them: which one is tied is not ours to guess.
    if (v1::Parameter* embedding = FindEmbedding()) embedding->add_aliases(kHead);
  }

  absl::Status OpenMasks() {
    if (!Exists(Display(kMaskFileName))) return absl::OkStatus();
    ESPALIER_ASSIGN_OR_RETURN(state_->mask_file, OpenFile(kMaskFileName));
    ESPALIER_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadHeader(*state_->mask_file));
    ESPALIER_ASSIGN_OR_RETURN(state_->mask_offsets,
                              ParseMaskHeader(header, state_->description, single_file_, state_->mask_file->name()));
    for (v1::Parameter& parameter : *state_->description.mutable_parameters()) {
      parameter.set_has_stored_mask(state_->mask_offsets.count(parameter.name()) > 0);
    }
    return absl::OkStatus();
  }

  void OpenOthers() {
    std::set<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator it(state_->directory, error), end; !error && it != end;
         it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (!std::filesystem::is_directory(it->status(error)) && IsCopied(name, single_file_)) names.insert(name);
      error.clear();
    }
    for (const std::string& name : names) {
      auto file = OpenFile(name);
      if (file.ok()) {
        state_->other_files.push_back(*std::move(file));
      } else {
        Note(absl::StrCat(name, " will not be copied: ", file.status().message()));
      }
    }
  }

  const CheckpointOptions& options_;
  const std::shared_ptr<Checkpoint::State> state_ = std::make_shared<Checkpoint::State>();
  bool single_file_ = false;
  std::set<std::string> names_;  // of the weight files
  WeightFiles weights_;
  SourceTensors tensors_;
};

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& path, const CheckpointOptions& options) {
  return CheckpointOpener(options).Open(path);
}

int Checkpoint::FindParameter(absl::string_view name) const {
  const auto& parameters = state_->description.parameters();
  const auto it = std::lower_bound(parameters.begin(), parameters.end(), name,
                                   [](const v1::Parameter& p, absl::string_view n) { return p.name() < n; });
  return it != parameters.end() && it->name() == name ? static_cast<int>(it - parameters.begin()) : -1;
}

absl::Status Checkpoint::ReadTensor(size_t i, int64_t begin, absl::Span<std::byte> out) const {
  const v1::Parameter& parameter = state_->description.parameters(static_cast<int>(i));
  const auto read = [this](size_t file, int64_t offset, absl::Span<std::byte> into) {
    return files()[file]->ReadAt(offset, into);
  };
  return ReadPieces(pieces(i), parameter.shape(), DtypeSize(parameter.dtype()), begin, out, read);
}

}  // namespace espalier
