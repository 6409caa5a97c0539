#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "server/recipe/rational.h"
#include "server/recipe/yaml_node.h"

namespace espalier {

// What a YAML scalar says. One reading, whatever YAML's version:
//  - in quotes (or as a block): text;
//  - true, false (also True, TRUE, False, FALSE): booleans; yes, no, on, off are text;
//  - digits with an optional sign, decimal point and exponent (1, -3, 0.5, .5, 5e-1, 1E+2): exact decimal numbers;
//    leading zeros mean nothing; hexadecimal, octal, 1_000, 1:30 and 0,5 are text;
//  - .inf, -.inf, .nan: not finite, never accepted;
//  - null, ~ and nothing at all: null; everything else: text.
struct Scalar {
  enum class Kind { kNull, kBool, kNumber, kNotFinite, kText };

  Kind kind = Kind::kNull;
  bool boolean = false;
  Rational number;
  std::string text;     // as written, for every kind
  bool quoted = false;  // text because of its quotes

  static Scalar OfNumber(Rational number);
  static Scalar OfText(std::string text);

  // "the text `half`", "true", "`0.5` in quotes, which is text": for messages.
  std::string Describe() const;
};

// REQUIRES: node is a scalar or null.
Scalar ReadScalar(const YamlNode& node);

}  // namespace espalier
