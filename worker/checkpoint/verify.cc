#include "worker/checkpoint/verify.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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

  VerifyResult Run(const ByteProgress& progress) {
    uint32_t crc = Crc32(0, manifest_.recipe.data(), manifest_.recipe.size());
    for (const std::string& recipe : manifest_.then) crc = Crc32(crc, recipe.data(), recipe.size());
    if (crc != manifest_.recipe_crc32) {
      Differ(kManifestName, "the recipe is not the one that the plan was made of");
    }
    CheckFiles();
    CheckStrays();
    CheckTensors(progress);
    return std::move(result_);
  }

 private:
  void Differ(std::string file, std::string what) { result_.differences.push_back({std::move(file), std::move(what)}); }

  void CheckFiles() {
    std::vector<std::pair<std::string, FileRecord>> files(manifest_.files.begin(), manifest_.files.end());
    std::vector<std::string> found(files.size());
    const auto check = [&](size_t i) {
      found[i] = CheckFile(files[i].first, files[i].second);
      return absl::OkStatus();
    };
    // Never fails: what is wrong with a file is what we are here to tell.
    if (!RunParallel(files.size(), ReadingThreads(), check).ok()) return;
    for (size_t i = 0; i < files.size(); ++i) {
      ++result_.files;
      result_.bytes += files[i].second.size;
      if (!found[i].empty()) Differ(files[i].first, std::move(found[i]));
    }
  }

  // What is wrong with a file, empty when nothing is.
  std::string CheckFile(const std::string& name, const FileRecord& record) const {
    const auto path = roots_.Resolve(absl::StrCat(directory_, "/", name));
    if (!path.ok()) return std::string(path.status().message());
    const auto file = InputFile::Open(*path, name);
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
    if (crc == record.crc32) return "";
    return absl::StrFormat("has the checksum %08x; %08x was written", crc, record.crc32);
  }

  // A weight file that we did not write would be loaded by tools that take all there are.
  void CheckStrays() {
    std::error_code error;
    for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (absl::EndsWith(name, ".safetensors") && manifest_.files.count(name) == 0) {
        Differ(name, "was not written with this checkpoint");
      }
    }
  }

  void CheckTensors(const ByteProgress& progress) {
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
      rows.erase(row);
    }
    for (const auto& [name, row] : rows)
      Differ(kManifestName, absl::StrCat("reports \"", name, "\", which no file holds"));
    if (digest != manifest_.mask_digest) {
      Differ(kMaskFileName,
             absl::StrCat("the masks have the digest ", digest, "; ", manifest_.mask_digest, " was written"));
    }
    CheckSummary();
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
  void DifferBy(const absl::Status& status) {
    const std::string file = MetadataOf(status, "file");
    Differ(file.empty() ? directory_ : Short(file), std::string(status.message()));
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
