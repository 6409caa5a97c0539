#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/recipe/problems.h"

namespace espalier {

// A YAML value as written, with its place; aliases are already expanded.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };

  Kind kind = Kind::kNull;
  Mark mark;
  // Of a scalar. A quoted one (single, double, block) is always text.
  std::string text;
  bool quoted = false;
  // Of a sequence: its items. Of a mapping: its values, parallel to `keys`.
  std::vector<YamlNode> children;
  std::vector<std::string> keys;
  std::vector<Mark> key_marks;

  bool scalar() const { return kind == Kind::kScalar; }
  bool sequence() const { return kind == Kind::kSequence; }
  bool mapping() const { return kind == Kind::kMapping; }

  // Value of `key` in a mapping; nullptr without.
  const YamlNode* Find(absl::string_view key) const;
  // "a mapping", "a list", "text", ... for messages.
  absl::string_view KindName() const;
};

}  // namespace espalier
