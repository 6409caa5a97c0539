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

}  // namespace espalier::testing
