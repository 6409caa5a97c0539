#include "worker/report/report_json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

// ---- Writing ----

// ASCII alone; what is not UTF-8 becomes U+FFFD.
std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string Bool(bool value) {
  return value ? "true" : "false";
}

double Sparsity(const v1::ParameterSparsity& row) {
  return row.numel() == 0 ? 0 : static_cast<double>(row.zeros()) / static_cast<double>(row.numel());
}

std::string StructureText(const v1::ParameterSparsity& row) {
  if (row.structure().m() != 0) return absl::StrCat("\"", row.structure().n(), ":", row.structure().m(), "\"");
  return row.masked() == 0 && row.mask_version() == 0 ? "null" : "\"unstructured\"";
}

void AppendSummary(const v1::SparsitySummary& s, std::string& out) {
  absl::StrAppend(&out, "{\"total\": ", s.total(), ", \"sparse\": ", s.sparse(),
                  ", \"sparsity_percent\": ", FloatRepr(s.sparsity_percent()), ", \"prunable\": ", s.prunable(),
                  ", \"prunable_sparse\": ", s.prunable_sparse(),
                  ", \"prunable_sparsity_percent\": ", FloatRepr(s.prunable_sparsity_percent()),
                  ", \"quantizable\": ", s.quantizable(), ", \"quantized\": ", s.quantized());
  absl::StrAppend(&out, ", \"quantized_percent\": ", FloatRepr(s.quantized_percent()), ", \"masked\": ", s.masked(),
                  ", \"mask_version\": ", s.mask_version(), "}");
}

void AppendRow(const v1::ParameterSparsity& row, std::string& out) {
  absl::StrAppend(&out, Quoted(row.name()), ": {\"numel\": ", row.numel(), ", \"sparsity\": ", FloatRepr(Sparsity(row)),
                  ", \"quantized\": false, \"zeros\": ", row.zeros(), ", \"masked\": ", row.masked(), ", \"dtype\": \"",
                  DtypeName(row.dtype()), "\", \"shape\": [", absl::StrJoin(row.shape(), ", "), "]");
  absl::StrAppend(&out, ", \"prunable\": ", Bool(row.prunable()), ", \"structure\": ", StructureText(row),
                  ", \"mask_version\": ", row.mask_version(),
                  ", \"planned\": ", row.planned() < 0 ? "null" : absl::StrCat(row.planned()), "}");
}

void AppendProvenance(const v1::Provenance& p, std::string& out) {
  absl::StrAppend(&out, "{\"run\": ", Quoted(p.run()), ", \"generation\": ", p.generation(),
                  ", \"mode\": ", Quoted(ReportModeName(p.mode())), ", \"world_size\": ", p.world_size(),
                  ", \"elapsed_seconds\": ", FloatRepr(p.elapsed_seconds()), ", \"bytes_moved\": ", p.bytes_moved());
  absl::StrAppend(&out, ", \"path\": ", Quoted(p.path()), ", \"time\": ", Quoted(p.time()),
                  ", \"version\": ", Quoted(p.version()), "}");
}

// ---- Reading ----

absl::Status Invalid(const std::string& where, absl::string_view what) {
  return MakeError(v1::ERROR_REASON_CHECKPOINT_INVALID, absl::StrCat("report: ", where, " ", what), {{"what", where}});
}

// One object of the report. The first thing found wrong sticks; everything read after it is a default.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  int64_t Integer(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return 0;
    if (!value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<uint64_t>() > std::numeric_limits<int64_t>::max())) {
      Fail(key, "is not an integer of 64 bits");
      return 0;
    }
    return value->get<int64_t>();
  }
  int64_t Count(const char* key) {
    const int64_t count = Integer(key);
    if (count < 0) Fail(key, "is negative");
    return count;
  }
  double Number(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return 0;
    if (!value->is_number()) Fail(key, "is not a number");
    return value->is_number() ? value->get<double>() : 0;
  }
  bool Boolean(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) Fail(key, "is neither true nor false");
    return value->is_boolean() && value->get<bool>();
  }
  std::string Text(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) Fail(key, "is not a string");
    return value->is_string() ? value->get<std::string>() : "";
  }
  bool IsNull(const char* key) {
    const Json* value = Find(key);
    return value == nullptr || value->is_null();
  }
  // nullptr where it is missing or no array.
  const Json* Array(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr || value->is_array()) return value;
    Fail(key, "is not an array");
    return nullptr;
  }

  void Fail(const char* key, absl::string_view what) {
    if (status_.ok()) status_ = Invalid(absl::StrCat(where_, ".", key), what);
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json* Find(const char* key) {
    if (object_.is_object()) {
      if (const auto it = object_.find(key); it != object_.end()) return &*it;
    }
    Fail(key, "is missing");
    return nullptr;
  }

  const Json& object_;
  const std::string where_;
  absl::Status status_;
};

absl::StatusOr<v1::SparsitySummary> ReadSummary(const Json& json) {
  Reader reader(json, "params_summary");
  v1::SparsitySummary summary;
  summary.set_total(reader.Count("total"));
  summary.set_sparse(reader.Count("sparse"));
  summary.set_sparsity_percent(reader.Number("sparsity_percent"));
  summary.set_prunable(reader.Count("prunable"));
  summary.set_prunable_sparse(reader.Count("prunable_sparse"));
  summary.set_prunable_sparsity_percent(reader.Number("prunable_sparsity_percent"));
  summary.set_quantizable(reader.Count("quantizable"));
  summary.set_quantized(reader.Count("quantized"));
  summary.set_quantized_percent(reader.Number("quantized_percent"));
  summary.set_masked(reader.Count("masked"));
  summary.set_mask_version(reader.Count("mask_version"));
  if (!reader.status().ok()) return reader.status();
  return summary;
}

void ReadShape(Reader& reader, v1::ParameterSparsity& row) {
  const Json* shape = reader.Array("shape");
  if (shape == nullptr) return;
  for (const Json& dimension : *shape) {
    const bool fits = dimension.is_number_unsigned() &&
                      dimension.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!fits) return reader.Fail("shape", "has something that is no dimension");
    row.add_shape(dimension.get<int64_t>());
  }
}

void ReadStructure(Reader& reader, v1::ParameterSparsity& row) {
  row.mutable_structure();
  if (reader.IsNull("structure")) return;
  const std::string text = reader.Text("structure");
  if (text == "unstructured") return;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  int32_t n = 0;
  int32_t m = 0;
  if (!absl::SimpleAtoi(parts.first, &n) || !absl::SimpleAtoi(parts.second, &m) || n < 0 || m <= 0 || n > m) {
    return reader.Fail("structure", "is neither null, \"unstructured\" nor \"N:M\"");
  }
  row.mutable_structure()->set_n(n);
  row.mutable_structure()->set_m(m);
}

absl::StatusOr<v1::ParameterSparsity> ReadRow(const std::string& name, const Json& json) {
  Reader reader(json, absl::StrCat("params_info.", name));
  v1::ParameterSparsity row;
  row.set_name(name);
  row.set_numel(reader.Count("numel"));
  row.set_zeros(reader.Count("zeros"));
  row.set_masked(reader.Count("masked"));
  row.set_dtype(ParseDtype(reader.Text("dtype")));
  if (row.dtype() == v1::DTYPE_UNSPECIFIED) reader.Fail("dtype", "is unknown");
  ReadShape(reader, row);
  row.set_prunable(reader.Boolean("prunable"));
  ReadStructure(reader, row);
  row.set_mask_version(reader.Count("mask_version"));
  row.set_planned(reader.IsNull("planned") ? -1 : reader.Count("planned"));
  reader.Boolean("quantized");
  if (reader.Number("sparsity") != Sparsity(row)) reader.Fail("sparsity", "is not zeros / numel");
  if (!reader.status().ok()) return reader.status();
  return row;
}

v1::ReportMode ParseMode(Reader& reader) {
  const std::string text = reader.Text("mode");
  for (const v1::ReportMode mode :
       {v1::REPORT_MODE_UNSPECIFIED, v1::REPORT_MODE_SHARD_COUNTS, v1::REPORT_MODE_GATHER, v1::REPORT_MODE_FILES}) {
    if (text == ReportModeName(mode)) return mode;
  }
  reader.Fail("mode", "is unknown");
  return v1::REPORT_MODE_UNSPECIFIED;
}

absl::StatusOr<v1::Provenance> ReadProvenance(const Json& json) {
  Reader reader(json, "provenance");
  v1::Provenance provenance;
  provenance.set_run(reader.Text("run"));
  provenance.set_generation(reader.Count("generation"));
  provenance.set_mode(ParseMode(reader));
  provenance.set_world_size(static_cast<int32_t>(reader.Count("world_size")));
  provenance.set_elapsed_seconds(reader.Number("elapsed_seconds"));
  provenance.set_bytes_moved(reader.Count("bytes_moved"));
  provenance.set_path(reader.Text("path"));
  provenance.set_time(reader.Text("time"));
  provenance.set_version(reader.Text("version"));
  if (!reader.status().ok()) return reader.status();
  return provenance;
}

}  // namespace

std::string FloatRepr(double value) {
  if (!std::isfinite(value)) return "null";  // JSON has no word for it
  char text[64];
  const char* end = std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific).ptr;
  const absl::string_view scientific(text, static_cast<size_t>(end - text));
  int exponent = 0;
  const bool parsed = absl::SimpleAtoi(scientific.substr(scientific.find('e') + 1), &exponent);
  // Python's bounds between the two spellings.
  if (!parsed || exponent < -4 || exponent >= 16) return std::string(scientific);
  char plain[64];
  end = std::to_chars(plain, plain + sizeof(plain), value, std::chars_format::fixed).ptr;
  const absl::string_view fixed(plain, static_cast<size_t>(end - plain));
  return absl::StrCat(fixed, fixed.find('.') == absl::string_view::npos ? ".0" : "");
}

std::string ReportModeName(v1::ReportMode mode) {
  switch (mode) {
    case v1::REPORT_MODE_SHARD_COUNTS:
      return "shard-counts";
    case v1::REPORT_MODE_GATHER:
      return "gather";
    case v1::REPORT_MODE_FILES:
      return "files";
    default:
      return "";
  }
}

std::string ReportToJson(absl::Span<const v1::ParameterSparsity> rows, const v1::SparsitySummary& summary,
                         const v1::Provenance* provenance) {
  std::string out = "{\"params_summary\": ";
  AppendSummary(summary, out);
  out += ", \"params_info\": {";
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i != 0) out += ", ";
    AppendRow(rows[i], out);
  }
  out += "}";
  if (provenance != nullptr) {
    out += ", \"provenance\": ";
    AppendProvenance(*provenance, out);
  }
  out += "}";
  return out;
}

absl::StatusOr<Report> ReportFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Invalid("text", "is not a JSON object");
  Report report;
  const auto summary = json.find("params_summary");
  if (summary == json.end()) return Invalid("params_summary", "is missing");
  ESPALIER_ASSIGN_OR_RETURN(report.summary, ReadSummary(*summary));

  const auto info = json.find("params_info");
  if (info == json.end() || !info->is_object()) return Invalid("params_info", "is missing or no object");
  for (const auto& [name, row_json] : info->items()) {
    ESPALIER_ASSIGN_OR_RETURN(v1::ParameterSparsity row, ReadRow(name, row_json));
    report.rows.push_back(std::move(row));
  }
  if (const auto provenance = json.find("provenance"); provenance != json.end()) {
    ESPALIER_ASSIGN_OR_RETURN(report.provenance, ReadProvenance(*provenance));
  }
  return report;
}

}  // namespace espalier
