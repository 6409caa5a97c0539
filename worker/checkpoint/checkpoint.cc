#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <tuple>
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
#include "worker/shard/dtype.h"
#include "worker/shard/layer_kinds.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

constexpr char kWeights[] = "model.safetensors";
constexpr char kExtension[] = ".safetensors";
constexpr char kDcpKey[] = "DCP_SHARDING_INFO";
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
    if (index_) ESPALIER_RETURN_IF_ERROR(CheckIndex());
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

  // Which files are the model: decided by the index, else there must be exactly one.
  absl::Status ListDirectory() {
    std::set<std::string> present, other;
    std::error_code error;
    for (std::filesystem::directory_iterator it(state_->directory, error), end; !error && it != end;
         it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (absl::EndsWith(name, kExtension)) present.insert(name);
      if (absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".gguf") || absl::EndsWith(name, ".pt"))
        other.insert(name);
    }
    if (error) {
      return CheckpointInvalid(state_->directory, "", absl::StrCat("cannot be listed: ", error.message()));
    }
    if (Exists(Display(kIndexName))) {
      ESPALIER_ASSIGN_OR_RETURN(const auto file, OpenFile(kIndexName));
      ESPALIER_ASSIGN_OR_RETURN(const std::string text, file->ReadText(kMaxIndexBytes));
      ESPALIER_ASSIGN_OR_RETURN(index_, ParseIndex(text, file->name()));
      for (const auto& [tensor, name] : index_->weight_map) names_.insert(name);
      return CheckListed(present);
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
    std::string dcp;
    for (const std::string& name : names_) {
      ESPALIER_ASSIGN_OR_RETURN(auto file, OpenFile(name));
      ESPALIER_ASSIGN_OR_RETURN(SafetensorsHeader header, ReadHeader(*file));
      if (header.metadata.count(kDcpKey) > 0 && dcp.empty()) dcp = file->name();
      headers_.push_back(std::move(header));
      state_->files.push_back(std::move(file));
    }
    if (!dcp.empty()) {
      return CheckpointInvalid(dcp, "",
                               absl::StrCat("holds shards of tensors (", kDcpKey,
                                            ") and nothing says how many files belong to them: consolidate them first, "
                                            "torch.distributed.checkpoint does it"));
    }
    if (!index_ && names_.size() > 1) {
      return CheckpointInvalid(state_->directory, "",
                               absl::StrCat("holds ", names_.size(), " .safetensors files and no ", kIndexName,
                                            " that says which are the model: ", JoinLimited(names_, ", ")));
    }
    return absl::OkStatus();
  }

  // Each entry of the index is in the file it names, and no tensor of these files is elsewhere or unlisted.
  absl::Status CheckIndex() {
    std::map<std::string, std::string> found;
    int64_t total = 0;
    size_t i = 0;
    for (const std::string& name : names_) {
      for (const TensorEntry& tensor : headers_[i++].tensors) {
        total += tensor.end - tensor.begin;
        const auto [it, inserted] = found.emplace(tensor.name, name);
        if (!inserted) {
          return CheckpointInvalid(Display(name), tensor.name, absl::StrCat("is also in ", it->second));
        }
        const auto listed = index_->weight_map.find(tensor.name);
        if (listed == index_->weight_map.end()) {
          return CheckpointInvalid(Display(name), tensor.name, absl::StrCat("is not listed in ", kIndexName));
        }
        if (listed->second != name) {
          return CheckpointInvalid(Display(name), tensor.name,
                                   absl::StrCat("is listed in ", kIndexName, " as being in ", listed->second));
        }
      }
    }
    for (const auto& [tensor, name] : index_->weight_map) {
      if (found.count(tensor) == 0) {
        return CheckpointInvalid(Display(name), tensor,
                                 absl::StrCat("is listed in ", kIndexName, " and not in the file"));
      }
    }
    if (index_->total_size && *index_->total_size != total) {
      Note(absl::StrCat(kIndexName, " says total_size ", *index_->total_size, "; the tensors have ", total, " bytes"));
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
    for (const SafetensorsHeader& header : headers_) {
      for (const TensorEntry& tensor : header.tensors) names.push_back(tensor.name);
    }
    auto canonical = CanonicalNames(names);
    if (!canonical.ok()) {
      return Annotate(canonical.status(), absl::StrCat(state_->path, ": "), {{"file", state_->path}});
    }
    std::vector<std::tuple<std::string, size_t, const TensorEntry*>> sorted;
    size_t k = 0;
    for (size_t i = 0; i < headers_.size(); ++i) {
      for (const TensorEntry& tensor : headers_[i].tensors) sorted.emplace_back((*canonical)[k++], i, &tensor);
    }
    std::sort(sorted.begin(), sorted.end());

    v1::ModelDescription& model = state_->description;
    model.set_architecture(config.hints.architecture);
    model.set_model_type(config.hints.model_type);
    int64_t total = 0;
    for (auto& [name, file, tensor] : sorted) {
      v1::Parameter& parameter = *model.add_parameters();
      parameter.set_name(std::move(name));
      parameter.set_dtype(tensor->dtype);
      parameter.mutable_shape()->Add(tensor->shape.begin(), tensor->shape.end());
      ClassifyParameter(config.hints, parameter);
      total += tensor->end - tensor->begin;
      state_->locations.push_back({.file = file, .offset = tensor->begin});
    }
    model.set_total_bytes(total);
    if (config.tie_word_embeddings) Tie();

    state_->format = "pt";
    const auto format = headers_.empty() ? std::map<std::string, std::string>::const_iterator()
                                         : headers_.front().metadata.find("format");
    if (!headers_.empty() && format != headers_.front().metadata.end()) state_->format = format->second;
    return absl::OkStatus();
  }

  // The output layer shares the embedding's storage and is not in the files.
  void Tie() {
    v1::Parameter* embedding = nullptr;
    for (v1::Parameter& parameter : *state_->description.mutable_parameters()) {
      if (parameter.name() == kHead) {
        Note(absl::StrCat(kHead, " is in the files although config.json ties it to the embedding; both are kept"));
        return;
      }
      for (const absl::string_view last : {"embed_tokens.weight", "wte.weight", "word_embeddings.weight"}) {
        if (parameter.name() != last && !absl::EndsWith(parameter.name(), absl::StrCat(".", last))) continue;
        // Two of them: which one is tied is not ours to guess.
        if (embedding != nullptr) return;
        embedding = &parameter;
      }
    }
    if (embedding != nullptr) embedding->add_aliases(kHead);
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
  std::set<std::string> names_;             // of the weight files
  std::vector<SafetensorsHeader> headers_;  // parallel to names_
  std::optional<CheckpointIndex> index_;
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
  const Location& at = location(i);
  return files()[at.file]->ReadAt(at.offset + begin, out);
}

}  // namespace espalier
