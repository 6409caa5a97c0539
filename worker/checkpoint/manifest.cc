#include "worker/checkpoint/manifest.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/checkpoint/strict_json.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

// 2^53: no file of a checkpoint is larger, and the sizes of all of them add up.
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 53;

// Texts of people may hold anything; what is not UTF-8 is replaced.
std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string PlanJson(const v1::Plan& plan) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string out;
  return google::protobuf::util::MessageToJsonString(plan, &out, options).ok() ? out : "{}";
}

}  // namespace

std::string MakeManifest(const v1::PublishCheckpoint& request, const std::map<std::string, FileRecord>& files) {
  OrderedJson records = OrderedJson::object();
  for (const auto& [name, record] : files) {
    records[name] = {{"size", record.size}, {"crc32", absl::StrFormat("%08x", record.crc32)}};
  }
  const std::vector<v1::ParameterSparsity> rows(request.report().begin(), request.report().end());
  const v1::Provenance& p = request.provenance();
  const OrderedJson provenance = {{"run", p.run()},
                                  {"generation", p.generation()},
                                  {"mode", ReportModeName(p.mode())},
                                  {"world_size", p.world_size()},
                                  {"elapsed_seconds", p.elapsed_seconds()},
                                  {"bytes_moved", p.bytes_moved()},
                                  {"path", p.path()},
                                  {"time", p.time()},
                                  {"version", p.version()}};
  return absl::StrCat("{\n\"format\": ", Dump(kManifestFormat),                           //
                      ",\n\"recipe_name\": ", Dump(request.recipe_name()),                //
                      ",\n\"recipe\": ", Dump(request.recipe()),                          //
                      ",\n\"plan\": ", PlanJson(request.plan()),                          //
                      ",\n\"report\": ",                                                  //
                      ReportToJson(rows, request.summary(), nullptr),                     //
                      ",\n\"mask_digest\": ", Dump(absl::StrCat(request.mask_digest())),  //
                      ",\n\"files\": ", Dump(records),                                    //
                      ",\n\"provenance\": ", Dump(provenance), "\n}\n");
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text, absl::string_view file) {
  ESPALIER_ASSIGN_OR_RETURN(const nlohmann::json json, ParseStrictJson(text, file));
  const auto bad = [&](absl::string_view key) {
    return CheckpointInvalid(file, "", absl::StrCat("has no usable \"", key, "\""));
  };
  for (const char* key : {"format", "recipe", "mask_digest"}) {
    if (!json.contains(key) || !json[key].is_string()) return bad(key);
  }
  for (const char* key : {"plan", "report", "files"}) {
    if (!json.contains(key) || !json[key].is_object()) return bad(key);
  }
  if (json["format"] != kManifestFormat) {
    return CheckpointInvalid(file, "", absl::StrCat("is not of the format ", kManifestFormat));
  }
  Manifest manifest;
  manifest.recipes.push_back(json["recipe"].get<std::string>());
  if (!absl::SimpleAtoi(json["mask_digest"].get<std::string>(), &manifest.mask_digest)) return bad("mask_digest");
  const auto crc = json["plan"].find("recipe_crc32");
  if (crc == json["plan"].end() || !crc->is_number_unsigned() ||
      crc->get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
    return bad("plan.recipe_crc32");
  }
  manifest.recipe_crc32 = crc->get<uint32_t>();
  if (const auto then = json["plan"].find("then"); then != json["plan"].end()) {
    if (!then->is_array()) return bad("plan.then");
    for (const nlohmann::json& each : *then) {
      if (!each.is_object() || !each.contains("recipe") || !each["recipe"].is_string()) return bad("plan.then");
      manifest.recipes.push_back(each["recipe"].get<std::string>());
    }
  }
  auto report = ReportFromJson(json["report"].dump());
  if (!report.ok()) return Annotate(report.status(), absl::StrCat(file, ": report: "), {{"file", std::string(file)}});
  manifest.report = *std::move(report);
  for (const auto& [name, value] : json["files"].items()) {
    FileRecord record;
    if (!value.is_object() || !value.contains("size") || !value["size"].is_number_unsigned() ||
        !value.contains("crc32") || !value["crc32"].is_string() ||
        !absl::SimpleHexAtoi(value["crc32"].get<std::string>(), &record.crc32)) {
      return bad(absl::StrCat("files: ", name));
    }
    // Verified are files of this directory, and sizes that add up.
    const fs::path path(name);
    const bool inside = path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end();
    if (!inside || value["size"].get<uint64_t>() > kMaxFileBytes) return bad(absl::StrCat("files: ", name));
    record.size = value["size"].get<int64_t>();
    manifest.files.emplace(name, record);
  }
  return manifest;
}

}  // namespace espalier
