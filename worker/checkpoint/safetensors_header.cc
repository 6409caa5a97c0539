#include "worker/checkpoint/safetensors_header.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/errors.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint_error.h"
#include "worker/shard/dtype.h"

namespace espalier {
namespace {

using Json = nlohmann::json;
constexpr int64_t kPrefixBytes = 8;
constexpr char kMetadata[] = "__metadata__";

// A product of dimensions never needs more; the reference implementation has no limit of its own here.
constexpr size_t kMaxDimensions = 64;

// Takes the header apart while it is parsed, so that nothing but its own grammar is ever held:
//   { "__metadata__": {string: string}, name: {"dtype": string, "shape": [n...], "data_offsets": [begin, end]}, ... }
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(absl::string_view file, SafetensorsHeader& out) : file_(file), out_(out) {}

  const absl::Status& status() const { return status_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool /*value*/) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return Unexpected(absl::StrCat("the number ", value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return Unexpected(absl::StrCat("the number ", absl::string_view(text).substr(0, 40)));
  }
  bool binary(binary_t& /*value*/) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Unexpected(absl::StrCat("the number ", value));
    }
    const auto number = static_cast<int64_t>(value);
    if (where_ == Where::kShape) {
      if (entry_.shape.size() == kMaxDimensions)
        return Fail(absl::StrCat("has more than ", kMaxDimensions, " dimensions"));
      entry_.shape.push_back(number);
      return true;
    }
    if (where_ == Where::kOffsets) {
      if (offsets_.size() == 2) return Fail("data_offsets has more than two numbers");
      offsets_.push_back(number);
      return true;
    }
    return Unexpected("a number");
  }

  bool string(string_t& value) override {
    if (where_ == Where::kMetadata) {
      out_.metadata[key_] = value;
      return true;
    }
    if (where_ != Where::kEntry || key_ != "dtype") return Unexpected("a string");
    entry_.dtype = ParseDtype(value);
    if (entry_.dtype != v1::DTYPE_UNSPECIFIED) return true;
    return Fail(absl::StrCat("has the unknown dtype \"", absl::string_view(value).substr(0, 40), "\""));
  }

  bool start_object(size_t /*size*/) override {
    if (where_ == Where::kStart) {
      where_ = Where::kTop;
      return true;
    }
    if (where_ != Where::kTop) return Unexpected("an object");
    where_ = key_ == kMetadata ? Where::kMetadata : Where::kEntry;
    return true;
  }

  bool key(string_t& value) override {
    if (where_ == Where::kTop) {
      if (!names_.insert(value).second) return Fail("is there twice", value);
      if (value != kMetadata) {
        entry_ = TensorEntry{.name = value};
        offsets_.clear();
        fields_.clear();
      }
    } else if (where_ == Where::kMetadata) {
      if (out_.metadata.count(value) > 0) {
        return Fail(absl::StrCat("__metadata__ has the key \"", absl::string_view(value).substr(0, 300), "\" twice"),
                    "");
      }
    } else {
      if (value != "dtype" && value != "shape" && value != "data_offsets") {
        return Fail(absl::StrCat("has the unknown field \"", absl::string_view(value).substr(0, 40), "\""));
      }
      if (!fields_.insert(value).second) return Fail(absl::StrCat("has the field \"", value, "\" twice"));
    }
    key_ = value;
    return true;
  }

  bool end_object() override {
    if (where_ == Where::kTop) {
      where_ = Where::kEnd;
      return true;
    }
    if (where_ == Where::kEntry) {
      if (fields_.size() != 3) return Fail("has not all of dtype, shape and data_offsets");
      if (offsets_.size() != 2) return Fail("data_offsets has not two numbers");
      entry_.begin = offsets_[0];
      entry_.end = offsets_[1];
      if (!FitsShape()) return false;
      out_.tensors.push_back(std::move(entry_));
    }
    where_ = Where::kTop;
    return true;
  }

  bool start_array(size_t /*size*/) override {
    if (where_ != Where::kEntry || key_ == "dtype") return Unexpected("a list");
    where_ = key_ == "shape" ? Where::kShape : Where::kOffsets;
    return true;
  }
  bool end_array() override {
    where_ = Where::kEntry;
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    return Fail(absl::StrCat("the header is not valid JSON at its byte ", position, ": ",
                             absl::string_view(error.what()).substr(0, 300)),
                "");
  }

 private:
  enum class Where { kStart, kTop, kMetadata, kEntry, kShape, kOffsets, kEnd };

  bool Fail(absl::string_view what, absl::string_view tensor) {
    if (status_.ok()) status_ = CheckpointInvalid(file_, tensor, what);
    return false;
  }
  bool Fail(absl::string_view what) { return Fail(what, entry_.name); }
  bool Unexpected(absl::string_view what) {
    if (where_ == Where::kStart) return Fail(absl::StrCat("the header is ", what, ", not an object"), "");
    if (where_ == Where::kMetadata) {
      return Fail(absl::StrCat("__metadata__ has ", what, " where a string belongs"), "");
    }
    if (where_ == Where::kTop) return Fail(absl::StrCat("has ", what, " where its description belongs"), key_);
    const absl::string_view place = where_ == Where::kShape     ? "shape"
                                    : where_ == Where::kOffsets ? "data_offsets"
                                                                : absl::string_view(key_);
    return Fail(absl::StrCat("has ", what, " at \"", place, "\""));
  }

  // shape x size = range, without overflow.
  bool FitsShape() {
    const std::string shape = absl::StrCat("[", absl::StrJoin(entry_.shape, ", "), "]");
    int64_t bytes = DtypeSize(entry_.dtype);
    bool empty = false;
    for (const int64_t dimension : entry_.shape) {
      // Without elements, too, the other dimensions must multiply: rows are counted in them.
      empty |= dimension == 0;
      if (dimension != 0 && __builtin_mul_overflow(bytes, dimension, &bytes)) {
        return Fail(absl::StrCat("has the shape ", shape, ", which is more than any file holds"));
      }
    }
    if (empty) bytes = 0;
    if (entry_.begin > entry_.end) {
      return Fail(absl::StrCat("begins at byte ", entry_.begin, " and ends before, at ", entry_.end));
    }
    if (entry_.end - entry_.begin == bytes) return true;
    return Fail(absl::StrCat("of shape ", shape, " and dtype ", DtypeName(entry_.dtype), " needs ", bytes,
                             " bytes; data_offsets give it ", entry_.end - entry_.begin));
  }

  const absl::string_view file_;
  SafetensorsHeader& out_;
  absl::Status status_;
  Where where_ = Where::kStart;
  std::string key_;
  TensorEntry entry_;  // offsets relative to the data until the whole is checked
  std::vector<int64_t> offsets_;
  absl::flat_hash_set<std::string> fields_;
  absl::flat_hash_set<std::string> names_;
};

// Every byte of the data belongs to one tensor.
absl::Status CheckCoverage(SafetensorsHeader& header, int64_t file_size, absl::string_view file) {
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t at = 0;
  const TensorEntry* before = nullptr;
  for (TensorEntry& tensor : header.tensors) {
    if (tensor.begin < at) {
      return CheckpointInvalid(file, tensor.name,
                               absl::StrCat("overlaps tensor \"", before->name.substr(0, 300), "\": it begins at byte ",
                                            tensor.begin, " of the data, the other ends at ", at));
    }
    if (tensor.begin > at) {
      return CheckpointInvalid(file, tensor.name,
                               absl::StrCat("leaves a gap: it begins at byte ", tensor.begin,
                                            " of the data, what comes before ends at ", at));
    }
    at = tensor.end;
    before = &tensor;
  }
  const int64_t data = file_size - header.data_begin;
  if (at > data) {
    return CheckpointInvalid(
        file, before->name,
        absl::StrCat("ends at byte ", at, " of the data; the file must have ", header.data_begin + at,
                     " bytes and has ", file_size, ": it is cut short, fetch it again"));
  }
  if (at < data) {
    return CheckpointInvalid(file, "",
                             absl::StrCat("has ", data - at, " bytes after the last tensor: expected ",
                                          header.data_begin + at, " bytes, the file has ", file_size));
  }
  for (TensorEntry& tensor : header.tensors) {
    tensor.begin += header.data_begin;
    tensor.end += header.data_begin;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ParseHeaderLength(absl::string_view first_bytes, int64_t file_size, absl::string_view file) {
  if (file_size < kPrefixBytes || first_bytes.size() < kPrefixBytes) {
    return CheckpointInvalid(file, "",
                             absl::StrCat("has ", file_size, " bytes; a safetensors file has at least ",
                                          kPrefixBytes + 2, ": it is cut short, fetch it again"));
  }
  uint64_t length = 0;
  for (int i = kPrefixBytes - 1; i >= 0; --i)
    length = length << 8 | static_cast<uint8_t>(first_bytes[static_cast<size_t>(i)]);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return CheckpointInvalid(file, "",
                             absl::StrCat("says its header has ", length, " bytes; at most ", kMaxHeaderBytes,
                                          " are allowed: it is damaged, or not a safetensors file"));
  }
  if (static_cast<int64_t>(length) > file_size - kPrefixBytes) {
    return CheckpointInvalid(file, "",
                             absl::StrCat("says its header has ", length, " bytes, so it must have at least ",
                                          kPrefixBytes + static_cast<int64_t>(length), "; it has ", file_size,
                                          ": it is cut short, fetch it again"));
  }
  return static_cast<int64_t>(length);
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view bytes, int64_t file_size,
                                                         absl::string_view file) {
  ESPALIER_ASSIGN_OR_RETURN(const int64_t length, ParseHeaderLength(bytes, file_size, file));
  if (static_cast<int64_t>(bytes.size()) < kPrefixBytes + length) {
    return CheckpointInvalid(file, "", "ends inside its header: it is cut short, fetch it again");
  }
  SafetensorsHeader header;
  header.data_begin = kPrefixBytes + length;
  const absl::string_view json = bytes.substr(kPrefixBytes, static_cast<size_t>(length));
  // The reference implementation asks for the brace; the JSON parser would also take a byte-order mark or spaces.
  if (json.empty() || json.front() != '{') return CheckpointInvalid(file, "", "the header does not begin with '{'");
  // The parser would take a NUL for the end.
  if (absl::StrContains(json, '\0')) return CheckpointInvalid(file, "", "the header is not valid JSON: it holds a NUL");
  HeaderReader reader(file, header);
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) return reader.status();
  ESPALIER_RETURN_IF_ERROR(CheckCoverage(header, file_size, file));
  return header;
}

absl::StatusOr<std::string> MakeSafetensorsHeader(const std::map<std::string, std::string>& metadata,
                                                  absl::Span<TensorEntry> tensors) {
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };
  std::string json = "{";
  if (!metadata.empty()) absl::StrAppend(&json, "\"", kMetadata, "\":", Json(metadata).dump());
  int64_t at = 0;
  for (TensorEntry& tensor : tensors) {
    int64_t bytes = DtypeSize(tensor.dtype);
    for (const int64_t dimension : tensor.shape) bytes *= dimension;
    tensor.begin = at;
    tensor.end = at += bytes;
    absl::StrAppend(&json, json.size() > 1 ? "," : "", quoted(tensor.name), ":{\"dtype\":\"", DtypeName(tensor.dtype),
                    "\",\"shape\":[", absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", tensor.begin, ",",
                    tensor.end, "]}");
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(json.size()) > kMaxHeaderBytes) {
    return MakeError(v1::ERROR_REASON_LIMIT_EXCEEDED,
                     absl::StrCat("a safetensors header of ", tensors.size(), " tensors would have ", json.size(),
                                  " bytes; readers accept ", kMaxHeaderBytes),
                     {{"limit", absl::StrCat(kMaxHeaderBytes)}, {"value", absl::StrCat(json.size())}});
  }
  std::string out;
  for (int i = 0; i < kPrefixBytes; ++i) out.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
  const int64_t data_begin = kPrefixBytes + static_cast<int64_t>(json.size());
  for (TensorEntry& tensor : tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  return out + json;
}

}  // namespace espalier
