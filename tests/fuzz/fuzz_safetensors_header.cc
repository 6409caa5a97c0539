// Any bytes in the place of a safetensors file: refused or understood, and what is understood is coherent and comes back
// the same when it is written.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "worker/checkpoint/mask_file.h"
#include "worker/checkpoint/safetensors_header.h"
#include "worker/shard/dtype.h"
#include "worker/shard/shard_range.h"

namespace {

void Require(bool truth) {
  if (!truth) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace espalier;  // one function of a program of its own
  const absl::string_view file(reinterpret_cast<const char*>(data), size);
  const auto header = ParseSafetensorsHeader(file, static_cast<int64_t>(size), "fuzz");
  if (!header.ok()) {
    Require(!header.status().message().empty());
    return 0;
  }
  int64_t at = header->data_begin;
  for (const TensorEntry& tensor : header->tensors) {
    Require(tensor.begin == at && tensor.end >= at);
    Require(tensor.end - tensor.begin == NumElements(tensor.shape) * DtypeSize(tensor.dtype));
    at = tensor.end;
  }
  Require(at == static_cast<int64_t>(size));

  std::vector<TensorEntry> again = header->tensors;
  const auto bytes = MakeSafetensorsHeader(header->metadata, absl::MakeSpan(again));
  Require(bytes.ok() && bytes->size() % 8 == 0);
  const int64_t total = again.empty() ? static_cast<int64_t>(bytes->size()) : again.back().end;
  const auto read = ParseSafetensorsHeader(*bytes, total, "fuzz");
  Require(read.ok() && read->metadata == header->metadata && read->tensors.size() == header->tensors.size());

  // As a mask file of a model that it may or may not fit.
  v1::ModelDescription model;
  v1::Parameter& parameter = *model.add_parameters();
  parameter.set_name("w");
  parameter.set_dtype(v1::DTYPE_BF16);
  parameter.add_shape(2);
  parameter.add_shape(9);
  const auto masks = ParseMaskHeader(*header, model, size % 2 == 0, "fuzz");
  Require(!masks.ok() || masks->size() <= 1);
  return 0;
}
