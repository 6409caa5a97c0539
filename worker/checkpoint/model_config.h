#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/shard/layer_kinds.h"

namespace espalier {

inline constexpr int64_t kMaxConfigBytes = 16'000'000;

// What is read of config.json.
struct ModelConfig {
  ModelHints hints;
  // The output layer is the embedding itself: `tie_word_embeddings`, also of `text_config`.
  bool tie_word_embeddings = false;
  // `vocab_size`, also of `text_config`; 0 where it is not said.
  int64_t vocab_size = 0;
};

// CHECKPOINT_INVALID, naming `file`. Fields of another type than the one expected are as good as missing. NaN and
// Infinity, which are no JSON and which Python writes, are let pass.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, absl::string_view file);

}  // namespace espalier
