// Any bytes in the place of model.safetensors.index.json, config.json and espalier/espalier.json.

#include <cstdint>
#include <cstdlib>

#include "absl/strings/match.h"
#include "worker/checkpoint/index_file.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/model_config.h"

namespace {

void Require(bool truth) {
  if (!truth) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace espalier;  // one function of a program of its own
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto index = ParseIndex(text, "fuzz");
  if (index.ok()) {
    Require(!index->weight_map.empty());
    for (const auto& [tensor, file] : index->weight_map) Require(!absl::StrContains(file, '/'));
    const auto again = ParseIndex(MakeIndex(*index), "fuzz");
    Require(again.ok() && again->weight_map == index->weight_map);
  }
  const auto config = ParseModelConfig(text, "fuzz");
  const auto manifest = ParseManifest(text, "fuzz");
  Require(config.ok() || !manifest.ok());  // a manifest is JSON, too
  return 0;
}
