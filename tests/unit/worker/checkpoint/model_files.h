#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/test_dir.h"

namespace espalier::testing {

// Safetensors files made by hand, with none of the product's code.
struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// Length prefix, JSON and data as they are given.
inline std::string RawFile(const std::string& json, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(json.size() >> (8 * i)));
  return out + json + data;
}

inline std::string TensorJson(const std::string& name, const std::string& dtype, const std::string& shape,
                              const std::string& offsets) {
  return absl::StrCat("\"", name, R"(":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)", offsets,
                      "}");
}

inline std::string MakeFile(const std::vector<RawTensor>& tensors, const std::string& metadata = R"({"format":"pt"})") {
  std::string json = absl::StrCat(R"({"__metadata__":)", metadata);
  std::string data;
  for (const RawTensor& t : tensors) {
    absl::StrAppend(&json, ",",
                    TensorJson(t.name, t.dtype, absl::StrCat("[", absl::StrJoin(t.shape, ","), "]"),
                               absl::StrCat("[", data.size(), ",", data.size() + t.bytes.size(), "]")));
    data += t.bytes;
  }
  return RawFile(json + "}", data);
}

template <typename Value>
std::string BytesOf(const std::vector<Value>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
}

// A BF16 weight without zeros, all values different in their low bits.
inline RawTensor Bf16Weight(const std::string& name, std::vector<int64_t> shape, uint32_t seed = 1) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  std::vector<uint16_t> values;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525 + 1013904223;
    values.push_back(static_cast<uint16_t>(0x3c00 | (seed >> 16 & 0x83ff)));
  }
  return {name, "BF16", std::move(shape), BytesOf(values)};
}

// The tensors in files of a directory with an index: tensors[i] is in file i.
inline void WriteSharded(const std::string& directory, const std::vector<std::vector<RawTensor>>& files) {
  std::string map;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = absl::StrCat("part-", i + 1, ".safetensors");
    WriteFile(directory + "/" + name, MakeFile(files[i]));
    for (const RawTensor& t : files[i])
      absl::StrAppend(&map, map.empty() ? "" : ",", "\"", t.name, "\":\"", name, "\"");
  }
  WriteFile(directory + "/model.safetensors.index.json", absl::StrCat(R"({"metadata":{},"weight_map":{)", map, "}}"));
}

// A rectangle of a row-major tensor, as bytes; also its own inverse's reference: element by element, by index.
inline std::string CutOut(const RawTensor& tensor, const std::vector<int64_t>& origin,
                          const std::vector<int64_t>& shape) {
  int64_t elements = 1, all = 1;
  for (const int64_t d : shape) elements *= d;
  for (const int64_t d : tensor.shape) all *= d;
  const size_t size = all == 0 ? 0 : tensor.bytes.size() / static_cast<size_t>(all);
  std::string out;
  for (int64_t i = 0; i < elements; ++i) {
    int64_t left = i, at = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0; left /= shape[d], stride *= tensor.shape[d]) {
      at += (origin[d] + left % shape[d]) * stride;
    }
    out += tensor.bytes.substr(static_cast<size_t>(at) * size, size);
  }
  return out;
}

// One piece for a file of PyTorch DCP's Hugging Face writer.
struct RawPiece {
  RawTensor tensor;  // its own shape and bytes
  std::vector<int64_t> origin;
};

inline RawPiece PieceOf(const RawTensor& tensor, std::vector<int64_t> origin, std::vector<int64_t> shape) {
  std::string bytes = CutOut(tensor, origin, shape);
  return {{tensor.name, tensor.dtype, std::move(shape), std::move(bytes)}, std::move(origin)};
}

// Rows [begin, end).
inline RawPiece RowsOf(const RawTensor& tensor, int64_t begin, int64_t end) {
  std::vector<int64_t> origin(tensor.shape.size()), shape = tensor.shape;
  origin[0] = begin;
  shape[0] = end - begin;
  return PieceOf(tensor, origin, shape);
}

// With DCP_SHARDING_INFO as given, which is JSON.
inline std::string DcpFile(const std::vector<RawTensor>& tensors, const std::string& info,
                           const std::string& more = R"("DCP_VERSION":"1.0","format":"pt")") {
  std::string quoted;
  for (const char c : info) absl::StrAppend(&quoted, c == '"' || c == '\\' ? "\\" : "", std::string(1, c));
  return MakeFile(tensors, absl::StrCat(R"({"DCP_SHARDING_INFO":")", quoted, "\",", more, "}"));
}

inline std::string DcpFile(const std::vector<RawPiece>& pieces) {
  std::vector<RawTensor> tensors;
  std::string info;
  for (const RawPiece& p : pieces) {
    tensors.push_back(p.tensor);
    absl::StrAppend(&info, info.empty() ? "{" : ",", "\"", p.tensor.name, R"(":{"saved_offsets":[)",
                    absl::StrJoin(p.origin, ","), "]}");
  }
  return DcpFile(tensors, info.empty() ? "{}" : info + "}");
}

inline std::string DcpName(int shard, int part = 1, int parts = 1) {
  return absl::StrCat("shard-0000", shard, "-model-0000", part, "-of-0000", parts, ".safetensors");
}

}  // namespace espalier::testing
