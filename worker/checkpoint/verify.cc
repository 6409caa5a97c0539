#include "worker/checkpoint/verify.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/support/crc32.h"
#include "proto/support/errors.h"
#include "proto/support/mutex.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/count.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/mask_file.h"
#include "worker/checkpoint/parallel.h"
#include "worker/mask/digest.h"
#include "worker/report/report.h"
#include "worker/select/groups.h"
#include "worker/shard/dtype.h"
#include "worker/shard/shard_range.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
constexpr size_t kReadBytes = size_t{1} << 20;

class Verifier {
 public:
  Verifier(std::string directory, const PathRoots& roots, Manifest manifest)
      : directory_(std::move(directory)), roots_(roots), manifest_(std::move(manifest)) {}

  // An error means that nothing is known, e.g. for want of open files.
  absl::StatusOr<VerifyResult> Run(const ByteProgress& progress) {
    if (Crc32OfTexts(manifest_.recipes) != manifest_.recipe_crc32) {
      Differ(kManifestName, "the recipe is not the one that the plan was made of");
    }
    ESPALIER_RETURN_IF_ERROR(CheckFiles());
    CheckStrays();
    ESPALIER_RETURN_IF_ERROR(CheckTensors(progress));
    return std::move(result_);
  }

 private:
  // Errors begin with their file, which a difference has beside it.
  void Differ(std::string file, absl::string_view what) {
    absl::ConsumePrefix(&what, absl::StrCat(file, ": "));
    result_.differences.push_back({std::move(file), std::string(what)});
  }

  absl::Status CheckFiles() {
    std::vector<std::pair<std::string, FileRecord>> files(manifest_.files.begin(), manifest_.files.end());
    std::vector<std::string> found(files.size());
    const auto check = [&](size_t i) -> absl::Status {
      ESPALIER_ASSIGN_OR_RETURN(found[i], CheckFile(files[i].first, files[i].second));
      return absl::OkStatus();
    };
    ESPALIER_RETURN_IF_ERROR(RunParallel(files.size(), ReadingThreads(), check));
    for (size_t i = 0; i < files.size(); ++i) {
      ++result_.files;
      result_.bytes += files[i].second.size;
      if (!found[i].empty()) Differ(files[i].first, std::move(found[i]));
    }
    return absl::OkStatus();
  }

  // What is wrong with a file, empty when nothing is.
  absl::StatusOr<std::string> CheckFile(const std::string& name, const FileRecord& record) const {
    const auto path = roots_.Resolve(absl::StrCat(directory_, "/", name));
    if (!path.ok()) return std::string(path.status().message());
    const auto file = InputFile::Open(*path, name);
    if (ReasonOf(file.status()) == v1::ERROR_REASON_LIMIT_EXCEEDED) return file.status();
    if (!file.ok()) return std::string(file.status().message());
    if ((*file)->size() != record.size) {
      return absl::StrCat("has ", (*file)->size(), " bytes; ", record.size, " were written");
    }
    std::vector<std::byte> buffer(std::min(kReadBytes, static_cast<size_t>(record.size)));
    uint32_t crc = 0;
    for (int64_t at = 0; at < record.size; at += static_cast<int64_t>(kReadBytes)) {
      const auto part = absl::MakeSpan(buffer).first(std::min(kReadBytes, static_cast<size_t>(record.size - at)));
      if (const absl::Status read = (*file)->ReadAt(at, part); !read.ok()) return std::string(read.message());
      crc = Crc32(crc, part.data(), part.size());
    }
    if (crc == record.crc32) return std::string();
    return absl::StrFormat("has the checksum %08x; %08x was written", crc, record.crc32);
  }

  // What we did not write: tools load all weight files that there are, and read a config.json that is new.
  void CheckStrays() {
    std::error_code error;
    for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      const bool counts = absl::EndsWith(name, ".safetensors") || absl::EndsWith(name, ".json");
      if (counts && manifest_.files.count(name) == 0) {
        Differ(name, "was not written with this checkpoint");
      }
    }
  }

  absl::Status CheckTensors(const ByteProgress& progress) {
    const auto opened = Checkpoint::Open(directory_, {.roots = roots_});
    if (!opened.ok()) return DifferBy(opened.status());
    const auto counted = CountAll(*opened, progress);
    if (!counted.ok()) return DifferBy(counted.status());

    std::map<std::string, const v1::ParameterSparsity*> rows;
    for (const v1::ParameterSparsity& row : manifest_.report.rows) rows[row.name()] = &row;
    uint64_t digest = 0;
    for (size_t i = 0; i < counted->size(); ++i) {
      ++result_.parameters;
      const v1::Parameter& parameter = opened->description().parameters(static_cast<int>(i));
      const FileCounts& counts = (*counted)[i];
      const std::string file = Short(opened->files()[opened->pieces(i)[0].file]->name());
      digest = AddDigests(digest, counts.digest);
      if (counts.violations > 0) {
        Differ(file, absl::StrCat("tensor \"", parameter.name(), "\": ", counts.violations,
                                  " weights under its mask are not zero"));
      }
      const auto row = rows.find(parameter.name());
      if (row == rows.end()) {
        Differ(file, absl::StrCat("tensor \"", parameter.name(), "\" is not in the report"));
        continue;
      }
      CheckRow(file, parameter, counts, *row->second);
      if (row->second->structure().m() > 0) {
        const absl::Status read = CheckStructure(file, *opened, i, row->second->structure());
        if (!read.ok()) return DifferBy(read);
      }
      rows.erase(row);
    }
    for (const auto& [name, row] : rows)
      Differ(kManifestName, absl::StrCat("reports \"", name, "\", which no file holds"));
    if (digest != manifest_.mask_digest) {
      Differ(kMaskFileName,
             absl::StrCat("the masks have the digest ", digest, "; ", manifest_.mask_digest, " was written"));
    }
    CheckSummary();
    return absl::OkStatus();
  }

  // N:M as reported, in the mask that is stored.
  absl::Status CheckStructure(const std::string& file, const Checkpoint& checkpoint, size_t i,
                              const v1::MaskStructure& structure) {
    const v1::Parameter& parameter = checkpoint.description().parameters(static_cast<int>(i));
    const ShardRange all = {0, NumElements(parameter.shape())};
    int64_t crowded = -1;  // no such groups at all
    if (const auto layout = GroupLayoutOf(parameter, structure); layout.ok() && parameter.has_stored_mask()) {
      ESPALIER_ASSIGN_OR_RETURN(const Bitmask mask, ReadStoredMask(checkpoint, i, all));
      crowded = CrowdedGroups(*layout, mask, all);
    }
    if (crowded != 0) {
      Differ(file, absl::StrCat("tensor \"", parameter.name(), "\" is reported as ", structure.n(), ":", structure.m(),
                                crowded < 0 ? ", which it cannot be"
                                            : absl::StrCat("; ", crowded, " groups keep more weights")));
    }
    return absl::OkStatus();
  }

  void CheckRow(const std::string& file, const v1::Parameter& parameter, const FileCounts& counts,
                const v1::ParameterSparsity& row) {
    const auto compare = [&](absl::string_view what, auto have, auto reported) {
      if (have == reported) return;
      Differ(file,
             absl::StrCat("tensor \"", parameter.name(), "\" has ", what, " ", have, "; ", reported, " is reported"));
    };
    compare("zeros:", counts.zeros, row.zeros());
    compare("masked:", counts.masked, row.masked());
    compare("elements:", NumElements(parameter.shape()), row.numel());
    compare("dtype", DtypeName(parameter.dtype()), DtypeName(row.dtype()));
    compare("shape", absl::StrJoin(parameter.shape(), "x"), absl::StrJoin(row.shape(), "x"));
  }

  void CheckSummary() {
    const v1::SparsitySummary& reported = manifest_.report.summary;
    const v1::SparsitySummary sums = Summarize(manifest_.report.rows, reported.mask_version());
    if (sums.total() != reported.total() || sums.sparse() != reported.sparse() ||
        sums.prunable() != reported.prunable() || sums.prunable_sparse() != reported.prunable_sparse() ||
        sums.masked() != reported.masked() || sums.sparsity_percent() != reported.sparsity_percent() ||
        sums.prunable_sparsity_percent() != reported.prunable_sparsity_percent()) {
      Differ(kManifestName, "the sums of the report are not those of its rows");
    }
  }

  std::string Short(const std::string& name) const { return fs::path(name).filename().string(); }
  absl::Status DifferBy(const absl::Status& status) {
    if (ReasonOf(status) == v1::ERROR_REASON_LIMIT_EXCEEDED) return status;
    const std::string file = MetadataOf(status, "file");
    absl::string_view what = status.message();
    absl::ConsumePrefix(&what, absl::StrCat(file, ": "));
    Differ(file.empty() ? directory_ : Short(file), what);
    return absl::OkStatus();
  }

  const std::string directory_;
  const PathRoots& roots_;
  const Manifest manifest_;
  VerifyResult result_;
};

}  // namespace

absl::StatusOr<VerifyResult> VerifyDirectory(const std::string& path, const PathRoots& roots,
                                             const ByteProgress& progress) {
  ESPALIER_ASSIGN_OR_RETURN(const std::string directory, roots.Resolve(path));
  const std::string name = absl::StrCat(directory, "/", kManifestName);
  std::error_code error;
  if (!fs::exists(name, error)) {
    return CheckpointInvalid(
        name, "", "does not exist: only what Espalier wrote can be verified; `inspect` reads any checkpoint");
  }
  ESPALIER_ASSIGN_OR_RETURN(const std::string resolved, roots.Resolve(name));
  ESPALIER_ASSIGN_OR_RETURN(const auto file, InputFile::Open(resolved, name));
  ESPALIER_ASSIGN_OR_RETURN(const std::string text, file->ReadText(kMaxManifestBytes));
  ESPALIER_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text, name));
  return Verifier(directory, roots, std::move(manifest)).Run(progress);
}

}  // namespace espalier
